# Kills a command and all that came of it. $1: what its environment holds. $2: its process id; none or 0 if it is not known.
# Nothing but the shell and /proc is needed; grep makes it quick.
#
# It finds whoever has inherited the environment, the command's own process and session, all descendants of these, and the
# sessions of all, except the one that this script is in: that is the agent's. Each is stopped when found, so that nothing
# is born meanwhile, and killed when no more are found.
mark=$1 pid=$2 victims=' ' sessions=' '

# read_stat reads what the kernel tells of process $1. The name in parentheses may hold anything: the fields are those
# after the last of these. Where its program's code and stack begin, which are random, tells one execution from another.
read_stat() {
	{ IFS= read -r stat </proc/$1/stat; } 2>/dev/null || return
	set -- ${stat##*) }
	state=$1 parent=$2 session=$4 threads=${18} size=${21} code=${24} program=${24}/${26}
}

read_stat $$ || exit 1
own=$session
nowhere=0 nothing=0 # where code begins that is not there yet, and the memory of a thread of the kernel
case $code in 0) nowhere=untold ;; esac
case $size in 0) nothing=untold ;; esac
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

# marked tells whether one of the environments in the files $@ has the mark.
marked() {
	for environ; do
		while IFS= read -r line || [ -n "$line" ]; do
			case $line in *"$mark"*) return 0 ;; esac
		done <"$environ"
	done 2>/dev/null
	return 1
}

# inherits tells whether process $1, whose stat has been read, has inherited the environment. While a process executes
# another program it has neither environment nor code, for as long as a busy machine lets it wait: that there is no mark is
# believed if the same program was there before the environment was read and after. Otherwise there is doubt.
inherits() {
	eval "clear=\${clear_$1-} seen=\${seen_$1-} seen_$1=\$program"
	case $inherited in *"/proc/$1/environ"*) return 0 ;; esac
	case $state/$size in
	Z/*) # the first thread has ended, and shows nothing
		marked /proc/$1/task/[0-9]*/environ
		return
		;;
	*/"$nothing") return 1 ;; # or of one that is about to be gone
	esac
	case $program in
	"$clear") return 1 ;;
	"$nowhere"/*) ;;
	"${inherited:+$seen}") # before grep and after
		eval "clear_$1=\$program"
		return 1
		;;
	*)
		! marked /proc/$1/environ || return 0
		seen=$program
		read_stat "$1" || return 1
		case $program in
		"$nowhere"/*) ;;
		"$seen")
			eval "clear_$1=\$program"
			return 1
			;;
		esac
		;;
	esac
	doubt=yes
	return 1
}

# look adds process $1 to the victims if it is one. One that has ended may have left a child that was not there when the
# processes were listed.
look() {
	case $1 in 1 | $$) return ;; esac
	case $victims in *" $1 "*) return ;; esac
	read_stat "$1" || state=X threads=
	case $state$threads in
	Z[01] | X*) # a zombie that has more threads than its first is none
		eval "clear=\${clear_$1-} clear_$1=ended"
		case $clear in '') ended=yes ;; esac
		return
		;;
	esac
	case $sessions$victims$pid in
	*" $session "* | *" $parent "* | *" $1") ;;
	*) inherits "$1" || return ;;
	esac
	kill -STOP "$1" 2>/dev/null || return
	victims="$victims$1 " more=1
	case $session in "$own") ;; *) sessions="$sessions$session " ;; esac # whoever is in it has come from the command too
}

case $grep in
yes) for dir in /proc/[0-9]*; do read_stat "${dir#/proc/}" && eval "seen_${dir#/proc/}=\$program"; done ;;
esac
round=0 again=0
while [ $round -lt 50 ]; do
	round=$((round + 1)) more= doubt= ended=
	read_marks
	for dir in /proc/[0-9]*; do look "${dir#/proc/}"; done
	case $more in 1) continue ;; esac
	case $victims$doubt in
	' yes') continue ;;
	' ')
		case $ended$again in
		yes[012]) again=$((again + 1)) ;;
		*) break ;; # where others come and go, there is always one that has ended
		esac
		continue
		;;
	esac
	kill -KILL $victims 2>/dev/null
	case $pid in ?*) kill -KILL -- "-$pid" 2>/dev/null ;; esac
	victims=' '
done
case $victims$doubt in
' ') echo done ;;
' yes') ;;
*) kill -KILL $victims ;;
esac
