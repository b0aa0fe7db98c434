package redytier

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Only region.go changes regions, and only the functions that know that a place has a region's bytes
// make the proof of it.
func TestWhoChangesRegions(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			for _, fault := range regionFaults(t, name, nil) {
				t.Error(fault)
			}
		}
	}
	for _, bad := range []string{
		"t.regions.edit(0).state = Stable",
		"r := t.regions.edit(0); r.state = Stable",
		"*t.regions.edit(0) = region{}",
		"t.regions.edit(0).put(p)",
		"t.regions.at(0).gate = 0",
		"r := t.regions.at(0); r.epoch++",
		"for _, r := range t.regions.all() { r.mirror = nil }",
		"func(r *region) { *r = other }(r)",
		"t.arrive(pulled{m}, false)",
		"t.restore(filled{at: p})",
		"all := []filled{{p}}",
		"f.at = p",
		"p.move = m",
		"t.restore(zeroed(places)[0])",
	} {
		if len(regionFaults(t, "other.go", "package redytier\nfunc other() {\n"+bad+"\n}\n")) == 0 {
			t.Errorf("%s: allowed", bad)
		}
	}
}

// mayCompose and mayCall are the functions that may compose values of a type, and call a function.
var (
	mayCompose = map[string][]string{"pulled": {"pull"}, "filled": {"populateGrant", "zeroed", "takeUp"}, "region": nil}
	mayCall    = map[string][]string{"zeroed": {"newCache", "grow", "commit", "replaceReported"}, "put": nil}
)

// regionFaults lists what breaks the rules in a file. src is its text; nil: that of the file.
func regionFaults(t *testing.T, name string, src any) (faults []string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	owner := name == "region.go"
	for _, decl := range file.Decls {
		in := "" // the function
		if f, ok := decl.(*ast.FuncDecl); ok {
			in = f.Name.Name
		}
		regions := map[string]bool{} // names of variables that point to regions
		called := map[ast.Expr]bool{}
		fault := func(n ast.Node, what string) {
			faults = append(faults, fmt.Sprintf("%s: %s %s", set.Position(n.Pos()), in, what))
		}
		written := func(to ast.Expr) {
			if s, ok := to.(*ast.SelectorExpr); ok && (s.Sel.Name == "at" || s.Sel.Name == "move") {
				fault(to, "changes a proof")
			}
			if root := rootOf(to); !owner && root != to && isRegion(root, regions) {
				fault(to, "changes a region")
			}
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				for _, id := range n.Names {
					star, ok := n.Type.(*ast.StarExpr)
					regions[id.Name] = ok && nameOf(star.X) == "region"
				}
			case *ast.RangeStmt:
				if id, ok := n.Value.(*ast.Ident); ok {
					regions[id.Name] = ofTable(n.X, "all")
				}
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if id, ok := to.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
						regions[id.Name] = isRegion(n.Rhs[i], regions)
					}
					written(to)
				}
			case *ast.IncDecStmt:
				written(n.X)
			case *ast.CompositeLit:
				of := nameOf(n.Type)
				if who, limited := mayCompose[of]; limited && len(n.Elts) > 0 && !slices.Contains(who, in) && (!owner || of != "region") {
					fault(n, "composes "+of)
				}
			case *ast.CallExpr:
				if s, ok := n.Fun.(*ast.SelectorExpr); ok {
					called[s.X] = true
				}
				if callee(n) == "edit" && !called[n] && !owner {
					fault(n, "takes a region to change it")
				}
				if who, limited := mayCall[callee(n)]; limited && !slices.Contains(who, in) && !owner {
					fault(n, "calls "+callee(n))
				}
			}
			return true
		})
	}
	return faults
}

// rootOf returns the variable or the call through which an expression reaches what it names.
func rootOf(x ast.Expr) ast.Expr {
	switch n := x.(type) {
	case *ast.SelectorExpr:
		return rootOf(n.X)
	case *ast.StarExpr:
		return rootOf(n.X)
	case *ast.ParenExpr:
		return rootOf(n.X)
	}
	return x
}

// isRegion reports whether an expression points to a region of a list.
func isRegion(x ast.Expr, regions map[string]bool) bool {
	if id, ok := x.(*ast.Ident); ok {
		return regions[id.Name]
	}
	return ofTable(x, "at") || ofTable(x, "edit")
}

// ofTable reports whether an expression calls a method of the list of a table's regions.
func ofTable(x ast.Expr, method string) bool {
	if callee(x) != method {
		return false
	}
	s, ok := x.(*ast.CallExpr).Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	list, ok := s.X.(*ast.SelectorExpr)
	return ok && list.Sel.Name == "regions"
}

// callee returns the name of the function that an expression calls, or "".
func callee(x ast.Expr) string {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return ""
	}
	if s, ok := call.Fun.(*ast.SelectorExpr); ok {
		return s.Sel.Name
	}
	return nameOf(call.Fun)
}

// nameOf returns the name of a type, or of its elements.
func nameOf(x ast.Expr) string {
	switch n := x.(type) {
	case *ast.Ident:
		return n.Name
	case *ast.ArrayType:
		return nameOf(n.Elt)
	case *ast.MapType:
		return nameOf(n.Value)
	}
	return ""
}
