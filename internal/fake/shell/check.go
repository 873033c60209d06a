package shell

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// unsupported names the first construct in st that the parser knows and this shell does not, and its line.
func unsupported(st *syntax.Stmt) (why string, line int) {
	syntax.Walk(st, func(n syntax.Node) bool {
		if n == nil || why != "" {
			return false
		}
		if why = unsupportedNode(n); why != "" {
			line = int(n.Pos().Line())
		}
		return why == ""
	})
	return why, line
}

func unsupportedNode(n syntax.Node) string {
	switch n := n.(type) {
	case *syntax.Stmt:
		if n.Coprocess || n.Disown {
			return "coprocess or disowned job"
		}
	case *syntax.CoprocClause:
		return "coproc"
	case *syntax.ProcSubst:
		return "process substitution"
	case *syntax.ExtGlob:
		return "extended pattern " + n.Op.String()
	case *syntax.ArrayExpr:
		return "array"
	case *syntax.FlagsArithm, *syntax.TestDecl:
		return "syntax of another shell"
	case *syntax.Assign:
		if n.Index != nil {
			return "array element"
		}
	case *syntax.ForClause:
		if n.Select {
			return "select"
		}
	case *syntax.FuncDecl:
		if n.Name == nil {
			return "function without a name"
		}
	case *syntax.CaseItem:
		if n.Op != syntax.Break && n.Op != syntax.Fallthrough {
			return "case item ended by " + n.Op.String()
		}
	case *syntax.CmdSubst:
		if n.TempFile || n.ReplyVar {
			return "command substitution of another shell"
		}
	case *syntax.DeclClause:
		switch v := n.Variant.Value; v {
		case "local", "export", "readonly":
		default:
			return v
		}
	case *syntax.Redirect:
		if n.N != nil {
			if _, err := strconv.Atoi(n.N.Value); err != nil {
				return "redirection with a variable"
			}
		}
	case *syntax.ParamExp:
		return unsupportedParam(n)
	}
	return ""
}

func unsupportedParam(n *syntax.ParamExp) string {
	switch {
	case n.Index != nil:
		return "array element"
	case n.Excl && (n.Names != 0 || n.Exp != nil || n.Slice != nil || n.Repl != nil):
		return "${!...}"
	case n.Param == nil, n.Flags != nil, n.Width, n.IsSet, n.NestedParam != nil, len(n.Modifiers) > 0,
		n.Split != syntax.OptUnset, n.GlobSubst != syntax.OptUnset, n.RcExpand != syntax.OptUnset:
		return "parameter expansion of another shell"
	}
	if n.Exp != nil {
		switch n.Exp.Op {
		case syntax.MatchEmpty, syntax.ArrayExclude, syntax.ArrayIntersect, syntax.OtherParamOps:
			return "${..." + n.Exp.Op.String() + "...}"
		}
	}
	return ""
}
