# The first process of the sandbox. When it ends, so does the sandbox.
#
# A beat is a line "<owner> <number> <seconds>" in the file below: the end is so far from now, by this machine's clock. It
# counts once, and only if no later one of the same owner was heard before. What was heard, and what is then left, stands
# in a second file, "<owner> <number> <hundredths>". Both are written over in place, so that a full disk stops no beat.
#
# Arguments: the window and the hard end, both in seconds, and a command that runs beside. When that ends, all ends, with
# its exit code; 97 is the end of the lease.
f=/tmp/.sandglass
[ -d /tmp ] || mkdir /tmp
window=$1 hard=$2
shift 2

# These would end some shells; TERM may, since it is how a sandbox is told to end.
trap '' HUP INT QUIT PIPE ALRM USR1 USR2

# clock sets now, in hundredths of a second since the machine was started. Where that cannot be read, or goes back, each
# look counts as a second, which errs towards the end.
last=0
clock() {
	{ read -r now rest </proc/uptime; } 2>/dev/null || now=
	case $now in
	*[!0-9.]* | *.*.*) ;;
	[0-9]*.[0-9][0-9])
		now=$((${now%.*} * 100 + 1${now#*.} - 100))
		case $((now >= last)) in 1)
			last=$now
			return
			;;
		esac
		;;
	esac
	last=$((last + 100)) now=$last
}

clock
hard=$((now + hard * 100)) end=$((now + window * 100))
case $((end > hard)) in 1) end=$hard ;; esac

# hear takes a beat.
hear() {
	case $2$3 in *[!0-9]*) return ;; esac
	case $2 in '' | 0* | ???????????*) return ;; esac
	case $3 in '' | 0* | ???????*) return ;; esac
	case $1 in "$owner") case $(($2 > number)) in 0) return ;; esac ;; esac
	owner=$1 number=$2 new=$3
	case $((new > window)) in 1) new=$window ;; esac # the service's own idle time is no longer
	end=$((now + new * 100))
	case $((end > hard)) in 1) end=$hard ;; esac
	echo "$owner $number $((end - now))" 1<>"$f.heard"
}

# The first beat may have been here before. One that an image has brought along does no harm: it is no longer than the window.
owner= number=0 seen=
{ echo >>"$f"; echo >>"$f.heard"; rm -f "$f.over"; } 2>/dev/null
case $# in
0) ;;
*) (trap - HUP INT QUIT PIPE ALRM USR1 USR2; "$@"; echo $? >"$f.over") & ;;
esac
while :; do
	clock
	case $((now >= end)) in 1) exit 97 ;; esac # before it listens: a late beat revives nothing
	who= n= s=
	{ read -r who n s rest <"$f"; } 2>/dev/null
	case "$who $n $s" in "$seen") ;; *)
		seen="$who $n $s"
		hear "$who" "$n" "$s" 2>/dev/null
		;;
	esac
	case $# in 0) ;; *)
		over=
		{ read -r over <"$f.over"; } 2>/dev/null
		case $over in '' | *[!0-9]*) ;; *) exit "$over" ;; esac
		;;
	esac
	sleep 1
done
