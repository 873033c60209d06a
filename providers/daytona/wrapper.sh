# Runs a command, and writes what it writes as lines that pass through anything: "@B" at its begin, "@O<base64>" for a
# piece of standard output, "@E<base64>" for one of standard error, "@O." and "@E." for their ends, "@X<exit code>".
#
# A piece is what one read brings, so that output is seen as it comes. A line is at most 4096 bytes long: so much is
# written at once, and lines of both streams do not run into each other.
#
# $1: the folder, or empty; then program and arguments.
s() {
	while c=$(dd bs=2700 count=1 2>/dev/null | base64); do
		case $c in
		'') printf '@%s.\n' "$1"; return ;;
		esac
		l=@$1
		for w in $c; do l=$l$w; done
		printf '%s\n' "$l"
	done
}
exec 3>&1
echo @B
{
	{
		(
			exec 3>&-
			case $1 in
			?*) cd "$1" || exit 126 ;;
			esac
			shift
			exec "$@"
		) </dev/null 2>&4 4>&-
		printf '@X%d\n' "$?" >&3
	} | s O >&3 4>&-
} 4>&1 | s E >&3
