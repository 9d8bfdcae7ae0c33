"""What the resource plugins and ImageLocality say they do not depend on can change without changing an answer."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidelog.api.objects import Node
from tidelog.framework.handle import FrameworkHandle
from tidelog.framework.interface import SKIP, CycleState, Depends, Plugin
from tidelog.framework.listers import Listers
from tidelog.framework.node_info import PodInfo
from tidelog.framework.snapshot import Snapshot
from tidelog.plugins.image_locality import ImageLocality
from tidelog.plugins.node_resources.balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from tidelog.plugins.node_resources.fit import NodeResourcesFit, NodeResourcesFitArgs
from tidelog.scheduler.cache import Cache
from tidelog.testing.builders import HOSTNAME, ZONE, PodBuilder, node, pod

GPU = "example.com/gpu"
amounts = st.integers(0, 5)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    builder = node(name).allocatable(
        {GPU: draw(amounts)}, cpu=draw(amounts), memory=f"{draw(amounts)}Gi", pods=draw(amounts)
    )
    for image in draw(st.sets(st.integers(0, 3))):
        builder = builder.image(f"image-{image}:latest", draw(st.integers(10, 900)) * 1024 * 1024)
    return builder.label({ZONE: draw(st.sampled_from("ab"))}).build()


@st.composite
def builders(draw: st.DrawFn, name: str) -> PodBuilder:
    builder = pod(name).image(f"image-{draw(st.integers(0, 3))}").request({GPU: draw(st.integers(0, 2))})
    if draw(st.booleans()):
        builder = builder.request(cpu=f"{draw(amounts)}00m", memory=f"{draw(amounts)}00Mi")
    if draw(st.booleans()):
        builder = builder.pod_anti_affinity(HOSTNAME, "app=a").priority(draw(amounts))
    return builder


def some_pods(prefix: str) -> st.SearchStrategy[list[PodBuilder]]:
    return st.lists(st.just(prefix), max_size=4).flatmap(
        lambda names: st.tuples(*(builders(f"{name}-{i}") for i, name in enumerate(names))).map(list)
    )


def answers(
    plugin_class: type[Plugin], incoming: PodBuilder, here: Node, others: list[Node], /, **pods: Any
) -> Any:
    """Filter's and Score's answers for the node `here`."""
    cache, snapshot = Cache(), Snapshot()
    for one in (here, *others):
        cache.put_node(one)
    for name, builders_there in pods.items():
        for builder in builders_there:
            cache.put_pod(PodInfo(builder.on(name).build()))
    snapshot.refresh(cache)
    args = {
        NodeResourcesFit: NodeResourcesFitArgs(),
        NodeResourcesBalancedAllocation: NodeResourcesBalancedAllocationArgs(),
    }
    plugin: Any = plugin_class(args.get(plugin_class), FrameworkHandle(snapshot, Listers()))
    state, info, found = CycleState(), PodInfo(incoming.build()), snapshot.get("here")
    filtered = scored = None
    if hasattr(plugin, "pre_filter"):
        plugin.pre_filter(state, info, snapshot.nodes)
        filtered = plugin.filter(state, info, found)
    if not hasattr(plugin, "pre_score") or plugin.pre_score(state, info, snapshot.nodes) != SKIP:
        scored = plugin.score(state, info, found)
    return filtered, scored


ON_NODE = Depends.STATE


@given(
    plugin=st.sampled_from([NodeResourcesFit, NodeResourcesBalancedAllocation]),
    incoming=builders("p"),
    here=nodes("here"),
    pods=some_pods("there"),
    before=nodes("other"),
    after=nodes("other"),
    more=st.booleans(),
    elsewhere=some_pods("elsewhere"),
)
def test_the_resource_plugins_look_at_the_node_and_its_pods_only(
    plugin: type[Plugin],
    incoming: PodBuilder,
    here: Node,
    pods: list[PodBuilder],
    before: Node,
    after: Node,
    more: bool,
    elsewhere: list[PodBuilder],
) -> None:
    assert plugin.filter_depends in (ON_NODE, Depends.CLUSTER)
    assert plugin.score_depends == ON_NODE

    first = answers(plugin, incoming, here, [before], here=pods)
    second = answers(plugin, incoming, here, [after] if more else [], here=pods, other=elsewhere)

    assert first == second


@given(
    incoming=builders("p"),
    here=nodes("here"),
    other=nodes("other"),
    before=some_pods("before"),
    after=some_pods("after"),
    elsewhere=some_pods("elsewhere"),
)
def test_image_locality_looks_at_nodes_and_not_at_pods(
    incoming: PodBuilder,
    here: Node,
    other: Node,
    before: list[PodBuilder],
    after: list[PodBuilder],
    elsewhere: list[PodBuilder],
) -> None:
    assert ImageLocality.score_depends == Depends.NODE | Depends.ALL_NODES

    first = answers(ImageLocality, incoming, here, [other], here=before)
    second = answers(ImageLocality, incoming, here, [other], here=after, other=elsewhere)

    assert first == second
