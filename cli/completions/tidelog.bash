# bash completion of tidelog, written by tools/make_completions.py.   source <(tidelog completion bash)
_tidelog() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb= word place
    COMPREPLY=()
    for ((place = 1; place < COMP_CWORD; place++)); do
        word=${COMP_WORDS[place]}
        case $word in
            --log | --feature-gates) [[ -z $verb ]] && ((place++)) ;;
            -*) ;;
            *)
                if [[ -z $verb ]]; then
                    verb=$word
                    case $verb in log | replay | shadow) ;; *) break ;; esac
                else
                    verb="$verb $word"
                    break
                fi
                ;;
        esac
    done
    case "$verb:$prev" in
        "demo:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "demo:--feature-gates") return ;;
        "run:--config") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--write-config-to") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--listen") return ;;
        "run:--actors") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--snapshot-every") return ;;
        "run:--keep") return ;;
        "run:--end-silent-leader") return ;;
        "run:--kubeconfig") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--context") return ;;
        "run:--mode") COMPREPLY=($(compgen -W "record shadow schedule" -- "$cur")); return ;;
        "run:--lease") return ;;
        "run:--redact") COMPREPLY=($(compgen -W "standard images pseudonymous" -- "$cur")); return ;;
        "run:--redact-key") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--keep-annotations") return ;;
        "run:--record-kinds") return ;;
        "run:--unsettled") return ;;
        "run:--events") COMPREPLY=($(compgen -W "all problems none" -- "$cur")); return ;;
        "run:--log-format") COMPREPLY=($(compgen -W "text json" -- "$cur")); return ;;
        "run:--log-level") COMPREPLY=($(compgen -W "error warning info debug" -- "$cur")); return ;;
        "run:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "run:--feature-gates") return ;;
        "serve:--config") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--listen") return ;;
        "serve:--kubeconfig-out") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--actors") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--metrics-listen") return ;;
        "serve:--token-file") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--client-ca") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--insecure-http") COMPREPLY=($(compgen -W "read-only read-write" -- "$cur")); return ;;
        "serve:--snapshot-every") return ;;
        "serve:--keep") return ;;
        "serve:--log-format") COMPREPLY=($(compgen -W "text json" -- "$cur")); return ;;
        "serve:--log-level") COMPREPLY=($(compgen -W "error warning info debug" -- "$cur")); return ;;
        "serve:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "serve:--feature-gates") return ;;
        "apply:-f" | "apply:--filename") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "apply:-n" | "apply:--namespace") return ;;
        "apply:-o" | "apply:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "apply:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "apply:--feature-gates") return ;;
        "diff:-f" | "diff:--filename") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "diff:-n" | "diff:--namespace") return ;;
        "diff:-o" | "diff:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "diff:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "diff:--feature-gates") return ;;
        "delete:-f" | "delete:--filename") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "delete:-n" | "delete:--namespace") return ;;
        "delete:--grace-period") return ;;
        "delete:-o" | "delete:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "delete:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "delete:--feature-gates") return ;;
        "patch-condition:--type") return ;;
        "patch-condition:--status") return ;;
        "patch-condition:--reason") return ;;
        "patch-condition:--message") return ;;
        "patch-condition:-n" | "patch-condition:--namespace") return ;;
        "patch-condition:-o" | "patch-condition:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "patch-condition:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "patch-condition:--feature-gates") return ;;
        "get:-n" | "get:--namespace") return ;;
        "get:-l" | "get:--selector") return ;;
        "get:--field-selector") return ;;
        "get:--at") return ;;
        "get:--for") return ;;
        "get:--since") return ;;
        "get:-o" | "get:--output") COMPREPLY=($(compgen -W "table wide json yaml name" -- "$cur")); return ;;
        "get:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "get:--feature-gates") return ;;
        "describe:-n" | "describe:--namespace") return ;;
        "describe:--at") return ;;
        "describe:-o" | "describe:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "describe:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "describe:--feature-gates") return ;;
        "why:-n" | "why:--namespace") return ;;
        "why:--at") return ;;
        "why:-o" | "why:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "why:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "why:--feature-gates") return ;;
        "why-not:-n" | "why-not:--namespace") return ;;
        "why-not:--at") return ;;
        "why-not:-o" | "why-not:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "why-not:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "why-not:--feature-gates") return ;;
        "queue:-n" | "queue:--namespace") return ;;
        "queue:--at") return ;;
        "queue:-o" | "queue:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "queue:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "queue:--feature-gates") return ;;
        "plan:-f" | "plan:--filename") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "plan:-n" | "plan:--namespace") return ;;
        "plan:--at") return ;;
        "plan:-o" | "plan:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "plan:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "plan:--feature-gates") return ;;
        "page:-o" | "page:--output") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "page:--listen") return ;;
        "page:--against") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "page:--from") return ;;
        "page:--to") return ;;
        "page:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "page:--feature-gates") return ;;
        "log init:--grant") return ;;
        "log init:--grant-reading") return ;;
        "log init:-o" | "log init:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log init:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log init:--feature-gates") return ;;
        "log status:-o" | "log status:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log status:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log status:--feature-gates") return ;;
        "log tail:-n" | "log tail:--lines") return ;;
        "log tail:--from") return ;;
        "log tail:-o" | "log tail:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log tail:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log tail:--feature-gates") return ;;
        "log show:-o" | "log show:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log show:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log show:--feature-gates") return ;;
        "log verify:-o" | "log verify:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log verify:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log verify:--feature-gates") return ;;
        "log repair:-o" | "log repair:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log repair:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log repair:--feature-gates") return ;;
        "log compact:--to") return ;;
        "log compact:--keep") return ;;
        "log compact:-o" | "log compact:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log compact:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log compact:--feature-gates") return ;;
        "log export:--to") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log export:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log export:--feature-gates") return ;;
        "log import:-o" | "log import:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "log import:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log import:--feature-gates") return ;;
        "log redact:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log redact:--feature-gates") return ;;
        "log to-test:--from") return ;;
        "log to-test:--to") return ;;
        "log to-test:--name") return ;;
        "log to-test:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "log to-test:--feature-gates") return ;;
        "replay verify:--sample") return ;;
        "replay verify:--jobs") return ;;
        "replay verify:-o" | "replay verify:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "replay verify:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "replay verify:--feature-gates") return ;;
        "replay what-if:--config") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "replay what-if:--gate") return ;;
        "replay what-if:--drop" | "replay what-if:--without") return ;;
        "replay what-if:--inject") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "replay what-if:--before") return ;;
        "replay what-if:-n" | "replay what-if:--namespace") return ;;
        "replay what-if:--save") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "replay what-if:-o" | "replay what-if:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "replay what-if:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "replay what-if:--feature-gates") return ;;
        "shadow report:--from") return ;;
        "shadow report:--to") return ;;
        "shadow report:-o" | "shadow report:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "shadow report:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "shadow report:--feature-gates") return ;;
        "bench:--nodes") return ;;
        "bench:--pods") return ;;
        "bench:-o" | "bench:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "bench:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "bench:--feature-gates") return ;;
        "completion:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "completion:--feature-gates") return ;;
        "version:-o" | "version:--output") COMPREPLY=($(compgen -W "table json yaml" -- "$cur")); return ;;
        "version:--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
        "version:--feature-gates") return ;;
        ":--log") compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur")); return ;;
    esac
    local words= options= files=
    case "$verb" in
        "") words="demo run serve apply diff delete patch-condition get describe why why-not queue plan page bench completion version log replay shadow help"; options="--log --feature-gates --debug --help --version" ;;
        help) words="demo run serve apply diff delete patch-condition get describe why why-not queue plan page bench completion version log replay shadow" ;;
        "log") words="init status tail show verify repair compact export import redact to-test"; options="--help" ;;
        "replay") words="verify what-if"; options="--help" ;;
        "shadow") words="report"; options="--help" ;;
        "demo") words=""; options="-h --help --log --feature-gates --debug" ;;
        "run") words=""; options="-h --help --config --write-config-to --listen --actors --snapshot-every --keep --end-silent-leader --no-standby --kubeconfig --context --mode --lease --redact --redact-key --keep-annotations --record-kinds --shadow-records --unsettled --events --reattach --replace-kube-scheduler --log-format --log-level -v --verbose --log --feature-gates --debug"; files=1 ;;
        "serve") words=""; options="-h --help --config --listen --kubeconfig-out --no-scheduler --actors --metrics-listen --token-file --client-ca --insecure-http --snapshot-every --keep --no-standby --log-format --log-level -v --verbose --log --feature-gates --debug"; files=1 ;;
        "apply") words=""; options="-h --help -f --filename -R --recursive -n --namespace --dry-run --strict -o --output --log --feature-gates --debug"; files=1 ;;
        "diff") words=""; options="-h --help -f --filename -R --recursive -n --namespace --strict -o --output --log --feature-gates --debug"; files=1 ;;
        "delete") words="pods nodes namespaces priorityclasses poddisruptionbudgets services replicationcontrollers replicasets statefulsets workloads podgroups resourceslices deviceclasses resourceclaims resourceclaimtemplates devicetaintrules persistentvolumeclaims persistentvolumes storageclasses csinodes csidrivers csistoragecapacities volumeattachments deployments jobs events all"; options="-h --help -f --filename -R --recursive -n --namespace --grace-period --force --ignore-not-found --dry-run -o --output --log --feature-gates --debug" ;;
        "patch-condition") words=""; options="-h --help --type --status --reason --message -n --namespace --dry-run -o --output --log --feature-gates --debug" ;;
        "get") words="pods nodes namespaces priorityclasses poddisruptionbudgets services replicationcontrollers replicasets statefulsets workloads podgroups resourceslices deviceclasses resourceclaims resourceclaimtemplates devicetaintrules persistentvolumeclaims persistentvolumes storageclasses csinodes csidrivers csistoragecapacities volumeattachments deployments jobs events all"; options="-h --help -n --namespace -A --all-namespaces -l --selector --field-selector --at --for --since --no-headers -o --output --log --feature-gates --debug" ;;
        "describe") words="pod node"; options="-h --help -n --namespace --at -o --output --log --feature-gates --debug" ;;
        "why") words=""; options="-h --help -n --namespace --at --nodes -o --output --log --feature-gates --debug" ;;
        "why-not") words=""; options="-h --help -n --namespace --at -o --output --log --feature-gates --debug" ;;
        "queue") words=""; options="-h --help -n --namespace --at -o --output --log --feature-gates --debug"; files=1 ;;
        "plan") words=""; options="-h --help -f --filename -R --recursive -n --namespace --strict --at -o --output --log --feature-gates --debug"; files=1 ;;
        "page") words=""; options="-h --help -o --output --open --listen --no-browser --against --from --to --log --feature-gates --debug"; files=1 ;;
        "log init") words=""; options="-h --help --grant --grant-reading -o --output --log --feature-gates --debug"; files=1 ;;
        "log status") words=""; options="-h --help -o --output --log --feature-gates --debug"; files=1 ;;
        "log tail") words=""; options="-h --help -n --lines --from -f --follow -o --output --log --feature-gates --debug"; files=1 ;;
        "log show") words=""; options="-h --help -o --output --log --feature-gates --debug"; files=1 ;;
        "log verify") words=""; options="-h --help --rebuild -o --output --log --feature-gates --debug"; files=1 ;;
        "log repair") words=""; options="-h --help --accept-loss -o --output --log --feature-gates --debug"; files=1 ;;
        "log compact") words=""; options="-h --help --to --keep --dry-run -o --output --log --feature-gates --debug"; files=1 ;;
        "log export") words=""; options="-h --help --to --log --feature-gates --debug"; files=1 ;;
        "log import") words=""; options="-h --help -o --output --log --feature-gates --debug"; files=1 ;;
        "log redact") words=""; options="-h --help --log --feature-gates --debug"; files=1 ;;
        "log to-test") words=""; options="-h --help --from --to --name --log --feature-gates --debug"; files=1 ;;
        "replay verify") words=""; options="-h --help --from-snapshot --sample --jobs -o --output --log --feature-gates --debug"; files=1 ;;
        "replay what-if") words=""; options="-h --help --config --gate --drop --without --inject --before -n --namespace --pods --save -o --output --log --feature-gates --debug"; files=1 ;;
        "shadow report") words=""; options="-h --help --from --to --all -o --output --log --feature-gates --debug"; files=1 ;;
        "bench") words=""; options="-h --help --nodes --pods -o --output --log --feature-gates --debug"; files=1 ;;
        "completion") words="bash zsh fish"; options="-h --help --log --feature-gates --debug" ;;
        "version") words=""; options="-h --help -o --output --log --feature-gates --debug" ;;
    esac
    if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W "$options" -- "$cur"))
    elif [[ -n $files ]]; then compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$cur"))
    else COMPREPLY=($(compgen -W "$words" -- "$cur")); fi
}
complete -F _tidelog tidelog
