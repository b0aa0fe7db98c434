package lua

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	glua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Script is a compiled script.
type Script struct{ proto *glua.FunctionProto }

// ScriptName is the name of scripts in errors.
const ScriptName = "user_script"

// Limits of a script's source.
const (
	maxNesting  = 1000
	maxOperands = 50 // of one call that concatenates
)

var errNesting = errors.New("chunk has too many syntax levels")

// Compile compiles a script. The error reads as Lua's.
func Compile(source string) (*Script, error) {
	proto, err := compile(source, ScriptName)
	if err != nil {
		return nil, err
	}
	return &Script{proto}, nil
}

func compile(source, name string) (proto *glua.FunctionProto, err error) {
	if len(source) > MaxSource {
		return nil, fmt.Errorf("%s:1: the script is larger than %d bytes", name, MaxSource)
	}
	if strings.HasPrefix(source, "\x1bLua") {
		return nil, fmt.Errorf("%s: bad header in precompiled chunk", name)
	}
	defer func() {
		if p := recover(); p != nil { // the library panics on some sources
			proto, err = nil, fmt.Errorf("%s:1: %v", name, p)
		}
	}()
	chunk, err := parse.Parse(strings.NewReader(source), name)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	var w rewriter
	if w.block(chunk); w.err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, w.line, w.err)
	}
	proto, err = glua.Compile(chunk, name)
	if err != nil {
		var e *glua.CompileError
		if errors.As(err, &e) {
			return nil, fmt.Errorf("%s:%d: %s", name, e.Line, e.Message)
		}
		return nil, fmt.Errorf("%s:1: %w", name, err)
	}
	return proto, nil
}

// syntaxError returns an error of the parser with Lua's words.
func syntaxError(name string, err error) error {
	var e *parse.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("%s:1: %w", name, err)
	}
	near := e.Token
	if e.Pos.Line < 1 || near == "" {
		near = "<eof>"
	}
	message := strings.TrimSpace(e.Message)
	switch message {
	case "syntax error":
		message = "unexpected symbol"
	case "parse error":
		message = "'=' expected"
	}
	return fmt.Errorf("%s:%d: %s near '%s'", name, max(e.Pos.Line, 1), message, near)
}

// concatName is the name of the function that concatenates, which no script can write.
const concatName = "(concat)"

// rewriter changes a parsed script: the operator .. becomes a call of concat, so that its strings
// are counted, and number literals are written as the compiler reads them. It limits the nesting,
// because the compiler recurses.
type rewriter struct {
	depth, line int
	err         error
}

// enter reports whether the rewriter may go one level deeper. If so, leave must follow.
func (w *rewriter) enter(at ast.PositionHolder) bool {
	if w.depth == maxNesting && w.err == nil {
		w.err, w.line = errNesting, at.Line()
	}
	if w.err != nil {
		return false
	}
	w.depth++
	return true
}

func (w *rewriter) leave() { w.depth-- }

func (w *rewriter) block(stmts []ast.Stmt) {
	for _, stmt := range stmts {
		if !w.enter(stmt) {
			return
		}
		w.stmt(stmt)
		w.leave()
	}
}

func (w *rewriter) stmt(stmt ast.Stmt) {
	switch s := stmt.(type) {
	case *ast.AssignStmt:
		w.exprs(s.Lhs)
		w.exprs(s.Rhs)
	case *ast.LocalAssignStmt:
		w.exprs(s.Exprs)
	case *ast.FuncCallStmt:
		w.expr(&s.Expr)
	case *ast.DoBlockStmt:
		w.block(s.Stmts)
	case *ast.WhileStmt:
		w.expr(&s.Condition)
		w.block(s.Stmts)
	case *ast.RepeatStmt:
		w.block(s.Stmts)
		w.expr(&s.Condition)
	case *ast.IfStmt:
		w.expr(&s.Condition)
		w.block(s.Then)
		w.block(s.Else)
	case *ast.NumberForStmt:
		w.expr(&s.Init)
		w.expr(&s.Limit)
		w.expr(&s.Step)
		w.block(s.Stmts)
	case *ast.GenericForStmt:
		w.exprs(s.Exprs)
		w.block(s.Stmts)
	case *ast.FuncDefStmt:
		if s.Name != nil {
			w.expr(&s.Name.Func)
			w.expr(&s.Name.Receiver)
		}
		w.block(s.Func.Stmts)
	case *ast.ReturnStmt:
		w.exprs(s.Exprs)
	}
}

func (w *rewriter) exprs(all []ast.Expr) {
	for i := range all {
		w.expr(&all[i])
	}
}

func (w *rewriter) expr(at *ast.Expr) {
	if *at == nil || !w.enter(*at) {
		return
	}
	defer w.leave()
	switch e := (*at).(type) {
	case *ast.NumberExpr:
		if n, ok := parseNumber(e.Value); ok {
			e.Value = strconv.FormatFloat(n, 'g', -1, 64)
		}
	case *ast.AttrGetExpr:
		w.expr(&e.Object)
		w.expr(&e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			w.expr(&f.Key)
			w.expr(&f.Value)
		}
	case *ast.FuncCallExpr:
		w.expr(&e.Func)
		w.expr(&e.Receiver)
		w.exprs(e.Args)
	case *ast.LogicalOpExpr:
		w.expr(&e.Lhs)
		w.expr(&e.Rhs)
	case *ast.RelationalOpExpr:
		w.expr(&e.Lhs)
		w.expr(&e.Rhs)
	case *ast.ArithmeticOpExpr:
		w.expr(&e.Lhs)
		w.expr(&e.Rhs)
	case *ast.UnaryMinusOpExpr:
		w.expr(&e.Expr)
	case *ast.UnaryNotOpExpr:
		w.expr(&e.Expr)
	case *ast.UnaryLenOpExpr:
		w.expr(&e.Expr)
	case *ast.FunctionExpr:
		w.block(e.Stmts)
	case *ast.StringConcatOpExpr:
		*at = w.concat(e)
	}
}

// concat returns the call that replaces a chain of the operator.
func (w *rewriter) concat(e *ast.StringConcatOpExpr) ast.Expr {
	var operands []ast.Expr
	for rest := ast.Expr(e); rest != nil; {
		operand := rest
		if c, ok := rest.(*ast.StringConcatOpExpr); ok && len(operands) < maxOperands {
			operand, rest = c.Lhs, c.Rhs
		} else {
			rest = nil
		}
		w.expr(&operand)
		operands = append(operands, operand)
	}
	switch last := operands[len(operands)-1].(type) { // it has one value, not all of its own
	case *ast.FuncCallExpr:
		last.AdjustRet = true
	case *ast.Comma3Expr:
		last.AdjustRet = true
	}
	name := &ast.IdentExpr{Value: concatName}
	name.SetLine(e.Line())
	call := &ast.FuncCallExpr{Func: name, Args: operands}
	call.SetLine(e.Line())
	call.SetLastLine(e.LastLine())
	return call
}

// numeral matches Lua's numbers. Go's have more forms.
var numeral = regexp.MustCompile(`^[ \t\n\v\f\r]*([+-]?)(0[xX][0-9a-fA-F]+|0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+|[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))[ \t\n\v\f\r]*$`)

// parseNumber returns the number that a string stands for.
func parseNumber(s string) (float64, bool) {
	if n, ok := parseDigits(s); ok {
		return n, true
	}
	m := numeral.FindStringSubmatch(s)
	if m == nil {
		return 0, false
	}
	digits := m[2]
	if len(digits) > 2 && (digits[1] == 'x' || digits[1] == 'X') && !strings.ContainsAny(digits, "pP") {
		digits += "p0" // Go's hexadecimal floats have an exponent
	}
	n, err := strconv.ParseFloat(m[1]+digits, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range: infinite, or 0
		return 0, false
	}
	return n, true
}

// parseDigits is parseNumber for short integers, which are the usual case.
func parseDigits(s string) (float64, bool) {
	if len(s) == 0 || len(s) > 15 {
		return 0, false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int(s[i]-'0')
	}
	return float64(n), true
}
