# Kills a command and all that came of it. Arguments: its process id, 0 if it is not known, and what its environment
# holds. The shell and /proc suffice; grep makes it quick.
#
# It finds the command's session, all descendants, whoever has inherited the environment, and the sessions of all these,
# except the one that this script is in: that is the daemon's. Each is stopped when found, so that nothing is born
# meanwhile, and killed when no more are found.
pid=$1 mark=$2 victims=' ' sessions=" $1 " own=
{ IFS= read -r stat </proc/$$/stat; } 2>/dev/null || exit 1
set -- ${stat##*) }
own=$4
case $pid in 0 | 1 | "$own") pid=none sessions=' ' ;; esac
kill -STOP -- "-$pid" 2>/dev/null # most of them at once, if the command leads a group
echo began
command -v grep >/dev/null 2>&1 && grep=yes || grep=

# read_marks reads who has inherited the environment, all at once. Where no process can be made, one by one it is.
read_marks() {
	inherited=
	case $grep in '') return ;; esac
	inherited=$(grep -lsF -e "$mark" /proc/[0-9]*/environ; echo "grep $?")
	case $inherited in *"grep 0" | *"grep 1" | *"grep 2") ;; *) inherited= ;; esac
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
	case $candidate in
	"$pid") ;;
	*)
		case $sessions$victims in
		*" $4 "* | *" $2 "*) ;;
		*) { marked "$candidate" </proc/$candidate/environ; } 2>/dev/null || return ;;
		esac
		;;
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
	kill -KILL -- "-$pid" 2>/dev/null
	victims=' '
done
case $victims in
' ') echo done ;;
*) kill -KILL $victims ;;
esac
