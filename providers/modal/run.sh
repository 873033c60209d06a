# Runs a command and tells its exit code as a shell does: 128+n after signal n.
#
# $1: the folder, or empty; $2: "in" if standard input is to be read; then program and arguments. The shell stays, so that
# the code is the same whatever the machine's own agent makes of a signal; what it would say of one itself goes nowhere.
# The program is never one of its own commands.
case $1 in
?*) cd -- "$1" || exit 126 ;;
esac
input=$2
shift 2
exec 3>&2 2>/dev/null
case $input in
in) (exec "$@" 2>&3 3>&-) ;;
*) (exec "$@" </dev/null 2>&3 3>&-) ;;
esac
exit $?
