# The first process of the container. When it ends, the kernel kills everything inside and the engine removes the
# container. It reads lines "<op> <token> <seconds>" from its standard input, which the engine alone writes to:
#
#   set  the end is so far from now
#   cut  the end is so far from now unless it lies nearer already
#   ask  the end stays where it is
#
# and answers "<token> <left> <run>": what is left, in hundredths of a second, and a number that is this run's own.
#
# Arguments: this script, the first window and the hard end, both in seconds.

# Being process 1, it is out of reach of KILL and STOP from inside; the rest it ignores, in shells that would handle it.
# CHLD is among them for two reasons. Where the shell lets go of it, the kernel reaps orphans. And where it does not, as
# in busybox, a read is cut short by an orphan's end instead of starting its second anew, so that a steady flow of
# orphans cannot keep it from looking at the clock.
trap '' HUP INT QUIT PIPE ALRM TERM USR1 USR2 CHLD

# Opened for writing too, the pipe never ends, not even when the engine is restarted under a living container.
exec 3<>/proc/self/fd/0

# clock sets now, in hundredths of a second since the machine was started, which goes on while it is suspended.
# Where it cannot be read, or goes back, each look at it counts as a second, which errs towards the end.
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
hard=$((now + $3 * 100)) end=$((now + $2 * 100))
case $((end > hard)) in 1) end=$hard ;; esac

# hear ends the container if it is time, before it obeys: a late line revives nothing.
hear() {
	clock
	case $((now >= end)) in 1) exit ;; esac
	case $1 in set | cut | ask) ;; *) return ;; esac
	case $3 in '' | *[!0-9]* | 0* | ???????*) return ;; esac
	new=$((now + $3 * 100))
	case $((new > hard)) in 1) new=$hard ;; esac
	case $1$((new < end)) in set? | cut1) end=$new ;; esac
	echo "$2 $((end - now)) $hard"
}

read -r -t 1 op 2>/dev/null </dev/null
case $? in
1)
	while :; do
		op= token= n=
		read -r -t 1 op token n <&3
		hear "$op" "$token" "$n"
	done
	;;
esac

# This shell cannot read with a limit. Another may be there that can.
if command -v bash >/dev/null; then
	exec bash -c "$1" "$0" "$@" <&3
fi

# No. A child is the clock then: root inside can kill it or stop it, and with it the clock. If it ends by itself,
# as it does when no further process can be made, so does the container.
(
	trap - CHLD
	trap 'echo end >&3' EXIT
	while sleep 1; do echo tick >&3; done
) &
while :; do
	read -r op token n <&3 || op= # interrupted by the end of an orphan, in some shells
	case $op in end) exit ;; esac
	hear "$op" "$token" "$n"
done
