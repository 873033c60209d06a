# Kills a command and all that came of it. $1: what its environment holds. $2: its process id; none or 0 if it is not known.
# Nothing but the shell and /proc is needed; grep makes it quick.
#
# It finds whoever has inherited the environment, the command's own process and session, all descendants of these, and the
# sessions of all, except the one that this script is in: that is the agent's. Each is stopped when found, so that nothing
# is born meanwhile, and killed when no more are found.
mark=$1 pid=$2 victims=' ' sessions=' ' own=
{ IFS= read -r stat </proc/$$/stat; } 2>/dev/null || exit 1
set -- ${stat##*) }
own=$4
case $pid in
0 | 1 | "$own") pid= ;;
?*)
	sessions=" $pid "
	kill -STOP -- "-$pid" 2>/dev/null # most of them at once, a fork bomb for example; whose parent is dead is hard to place
	;;
esac

# Most shells read byte by byte, which takes seconds where much runs. Bash does not, and where no process can be made, it
# tries for so long that time would be up.
grep=
case ${BASH_VERSION-} in '') command -v grep >/dev/null 2>&1 && grep=yes ;; esac

# read_marks reads who has inherited the environment, all at once. There are many greps, and not all see beyond a NUL: one
# is believed if it finds itself. Where no process can be made, a shell ends, unless it is for "command" to end.
read_marks() {
	inherited=
	case $grep in '') return ;; esac
	{ command eval 'inherited=$(mine=$mark grep -lszF -e "$mark" /proc/[0-9]*/environ /proc/self/environ)'; } 2>/dev/null
	case $inherited in */proc/self/environ*) ;; *) inherited= ;; esac
}

marked() {
	case $inherited in
	*"/proc/$1/environ"*) return 0 ;;
	?*) return 1 ;;
	esac
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
	case $sessions$victims$pid in
	*" $4 "* | *" $2 "* | *" $candidate") ;;
	*) { marked "$candidate" </proc/$candidate/environ; } 2>/dev/null || return ;;
	esac
	kill -STOP "$candidate" 2>/dev/null || return
	victims="$victims$candidate " more=1
	case $4 in "$own") ;; *) sessions="$sessions$4 " ;; esac # whoever is in it has come from the command too
}

round=0
while [ $round -lt 50 ]; do
	round=$((round + 1)) more=
	read_marks
	for dir in /proc/[0-9]*; do look "${dir#/proc/}"; done
	case $more in 1) continue ;; esac
	case $victims in ' ') break ;; esac
	kill -KILL $victims 2>/dev/null
	case $pid in ?*) kill -KILL -- "-$pid" 2>/dev/null ;; esac
	victims=' '
done
case $victims in
' ') echo done ;;
*) kill -KILL $victims ;;
esac
