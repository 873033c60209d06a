# Runs a command and tells its exit code as a shell does: 128+n after signal n.
#
# $1: the folder, or empty; then program and arguments. The shell stays, so that the code is the same whatever the machine's
# own agent makes of a signal; what it would say of one itself goes nowhere. The program is never one of its own commands.
case $1 in
?*) cd -- "$1" || exit 126 ;;
esac
shift
exec 3>&2 2>/dev/null
(exec "$@" </dev/null 2>&3 3>&-)
exit $?
