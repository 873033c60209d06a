# Kills a command and all that came of it. $1: what its environment holds. Nothing but the shell and /proc is needed.
#
# It finds whoever has inherited the environment, all descendants of these, and the sessions of all, except the one that
# this script is in: that is the agent's. Each is stopped when found, so that nothing is born meanwhile, and killed when no
# more are found.
mark=$1 victims=' ' sessions=' ' own=
{ IFS= read -r stat </proc/$$/stat; } 2>/dev/null || exit 1
set -- ${stat##*) }
own=$4

marked() {
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in *"$mark"*) return 0 ;; esac
	done
	return 1
}

# look adds process $1 to the victims if it is one. In its stat, the name in parentheses may hold anything, so that the
# fields are those after the last of these: state, parent, group, session.
look() {
	case $1 in 1 | $$) return ;; esac
	case $victims in *" $1 "*) return ;; esac
	{ IFS= read -r stat </proc/$1/stat; } 2>/dev/null || return
	candidate=$1
	set -- ${stat##*) }
	case $1 in Z | X) return ;; esac
	case $sessions$victims in
	*" $4 "* | *" $2 "*) ;;
	*) { marked </proc/$candidate/environ; } 2>/dev/null || return ;;
	esac
	kill -STOP "$candidate" 2>/dev/null || return
	victims="$victims$candidate " more=1
	case $4 in "$own") ;; *) sessions="$sessions$4 " ;; esac # whoever is in it has come from the command too
}

round=0
while [ $round -lt 50 ]; do
	round=$((round + 1)) more=
	for dir in /proc/[0-9]*; do look "${dir#/proc/}"; done
	case $more in 1) continue ;; esac
	case $victims in ' ') break ;; esac
	kill -KILL $victims 2>/dev/null
	victims=' '
done
case $victims in
' ') echo done ;;
*) kill -KILL $victims ;;
esac
