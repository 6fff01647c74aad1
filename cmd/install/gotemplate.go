package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// A goTemplate is a template in the language of Go's text/template, for decoded JSON: maps,
// lists, strings, numbers, booleans and nil.
//
// Only the parser is text/template's. A binary that links its evaluator, which calls methods
// by name, keeps every method of every type: a third more of the installer
// (TestMethodsAreNotCalledByName).
type goTemplate struct {
	trees        map[string]*parse.Tree
	allowMissing bool // a missing key prints <no value>; otherwise it is an error
}

const mainTemplate = "output"

func parseGoTemplate(text string, allowMissing bool) (*goTemplate, error) {
	known := map[string]any{"and": true, "or": true}
	for name := range templateFuncs {
		known[name] = true
	}
	trees, err := parse.Parse(mainTemplate, text, "", "", known)
	return &goTemplate{trees, allowMissing}, err
}

func (t *goTemplate) execute(out io.Writer, document any) error {
	return t.call(out, mainTemplate, document, 0)
}

// call executes a template of the set with its own variables.
func (t *goTemplate) call(out io.Writer, name string, dot any, depth int) error {
	tree := t.trees[name]
	if tree == nil || tree.Root == nil {
		if name == mainTemplate { // it has only definitions
			return nil
		}
		return fmt.Errorf("there is no template %q", name)
	}
	if depth > 1000 {
		return fmt.Errorf("template %q calls itself too often", name)
	}
	r := &templateRun{goTemplate: t, out: out, depth: depth, vars: []templateVar{{"$", dot}}}
	return r.walk(dot, tree.Root)
}

// templateRun is one execution of one template.
type templateRun struct {
	*goTemplate
	out   io.Writer
	vars  []templateVar // the innermost last
	depth int           // how many templates call this one
}

type templateVar struct {
	name  string
	value any
}

var errBreak, errContinue = errors.New("{{break}} outside {{range}}"), errors.New("{{continue}} outside {{range}}")

func (r *templateRun) walk(dot any, node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			if err := r.walk(dot, child); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		_, err := r.out.Write(n.Text)
		return err
	case *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		value, err := r.pipe(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		_, err = io.WriteString(r.out, printable(value))
		return err
	case *parse.IfNode:
		return r.branch(dot, &n.BranchNode, dot)
	case *parse.WithNode:
		return r.branch(dot, &n.BranchNode, nil)
	case *parse.RangeNode:
		return r.loop(dot, n)
	case *parse.BreakNode:
		return errBreak
	case *parse.ContinueNode:
		return errContinue
	case *parse.TemplateNode:
		value, err := r.pipe(dot, n.Pipe)
		if err != nil {
			return err
		}
		return r.call(r.out, n.Name, value, r.depth+1)
	}
	return fmt.Errorf("%s is not supported", node)
}

// branch executes an if or a with.
func (r *templateRun) branch(dot any, n *parse.BranchNode, inside any) error {
	defer r.leave(len(r.vars))
	value, err := r.pipe(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case isTrue(value) && n.NodeType == parse.NodeWith:
		return r.walk(value, n.List)
	case isTrue(value):
		return r.walk(inside, n.List)
	case n.ElseList != nil:
		return r.walk(dot, n.ElseList)
	}
	return nil
}

// leave removes the variables of a block that ends.
func (r *templateRun) leave(count int) { r.vars = r.vars[:count] }

func (r *templateRun) loop(dot any, n *parse.RangeNode) error {
	defer r.leave(len(r.vars))
	value, err := r.pipe(dot, n.Pipe)
	if err != nil {
		return err
	}
	var keys, values []any
	switch v := value.(type) {
	case nil:
	case int:
		for i := range v {
			keys, values = append(keys, i), append(values, i)
		}
	case []any:
		for i, element := range v {
			keys, values = append(keys, i), append(values, element)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			keys, values = append(keys, key), append(values, v[key])
		}
	default:
		return fmt.Errorf("range cannot iterate over %v", v)
	}
	if len(values) == 0 && n.ElseList != nil {
		return r.walk(dot, n.ElseList)
	}
	declared := len(r.vars)
	for i := range values {
		r.leave(declared)
		switch decl := n.Pipe.Decl; len(decl) {
		case 1:
			r.assign(decl[0], values[i], true)
		case 2:
			r.assign(decl[0], keys[i], true)
			r.assign(decl[1], values[i], true)
		}
		err := r.walk(values[i], n.List)
		if errors.Is(err, errBreak) {
			return nil
		}
		if err != nil && !errors.Is(err, errContinue) {
			return err
		}
	}
	return nil
}

// assign declares a variable or changes the innermost of its name.
func (r *templateRun) assign(v *parse.VariableNode, value any, declare bool) {
	name := v.Ident[0]
	if !declare {
		for i := len(r.vars) - 1; i >= 0; i-- {
			if r.vars[i].name == name {
				r.vars[i].value = value
				return
			}
		}
	}
	r.vars = append(r.vars, templateVar{name, value})
}

// pipe evaluates a pipeline: each command's value is the last argument of the next.
func (r *templateRun) pipe(dot any, n *parse.PipeNode) (value any, err error) {
	if n == nil {
		return nil, nil
	}
	for i, cmd := range n.Cmds {
		var last []any
		if i > 0 {
			last = []any{value}
		}
		if value, err = r.command(dot, cmd, last); err != nil {
			return nil, err
		}
	}
	for _, v := range n.Decl {
		r.assign(v, value, !n.IsAssign)
	}
	return value, nil
}

func (r *templateRun) command(dot any, cmd *parse.CommandNode, last []any) (any, error) {
	name, isFunc := cmd.Args[0].(*parse.IdentifierNode)
	if !isFunc {
		if len(cmd.Args) > 1 || last != nil {
			return nil, fmt.Errorf("%s takes no arguments: it is not a function", cmd.Args[0])
		}
		return r.value(dot, cmd.Args[0])
	}
	if name.Ident == "and" || name.Ident == "or" {
		return r.logic(dot, name.Ident == "or", cmd.Args[1:], last)
	}
	var args []any
	for _, arg := range cmd.Args[1:] {
		value, err := r.value(dot, arg)
		if err != nil {
			return nil, err
		}
		args = append(args, value)
	}
	value, err := templateFuncs[name.Ident](append(args, last...))
	if err != nil {
		return nil, fmt.Errorf("error calling %s: %w", name.Ident, err)
	}
	return value, nil
}

// logic evaluates and, or: the first argument that decides, or the last one.
func (r *templateRun) logic(dot any, decides bool, args []parse.Node, last []any) (value any, err error) {
	if len(args)+len(last) == 0 {
		return nil, errors.New("and, or need an argument")
	}
	for _, arg := range args {
		if value, err = r.value(dot, arg); err != nil || isTrue(value) == decides {
			return value, err
		}
	}
	for _, value = range last {
	}
	return value, nil
}

// value evaluates an operand.
func (r *templateRun) value(dot any, node parse.Node) (any, error) {
	switch n := node.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.NilNode:
		return nil, errors.New("nil is not a command")
	case *parse.BoolNode:
		return n.True, nil
	case *parse.StringNode:
		return n.Text, nil
	case *parse.NumberNode:
		return number(n)
	case *parse.FieldNode:
		return r.fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(r.vars) - 1; i >= 0; i-- {
			if r.vars[i].name == n.Ident[0] {
				return r.fields(r.vars[i].value, n.Ident[1:])
			}
		}
		return nil, fmt.Errorf("undefined variable %s", n.Ident[0])
	case *parse.ChainNode:
		value, err := r.value(dot, n.Node)
		if err != nil {
			return nil, err
		}
		return r.fields(value, n.Field)
	case *parse.PipeNode:
		return r.pipe(dot, n)
	case *parse.IdentifierNode:
		return r.command(dot, &parse.CommandNode{Args: []parse.Node{n}}, nil)
	}
	return nil, fmt.Errorf("%s is not supported", node)
}

// number returns a constant as Go types it: an int unless it is written as a float.
func number(n *parse.NumberNode) (any, error) {
	switch {
	case n.IsFloat && strings.ContainsAny(n.Text, ".eEpP") && !strings.HasPrefix(n.Text, "0x") && !strings.HasPrefix(n.Text, "'"):
		return n.Float64, nil
	case n.IsInt:
		return int(n.Int64), nil
	}
	return nil, fmt.Errorf("the number %s is not supported", n.Text)
}

// fields follows a chain of keys: .a.b.c.
func (r *templateRun) fields(value any, names []string) (any, error) {
	for _, name := range names {
		switch v := value.(type) {
		case map[string]any:
			inner, ok := v[name]
			if !ok && !r.allowMissing {
				return nil, fmt.Errorf("map has no entry for key %q", name)
			}
			value = inner
		case nil:
			if !r.allowMissing {
				return nil, fmt.Errorf("nil data; no entry for key %q", name)
			}
		default:
			return nil, fmt.Errorf("can't evaluate field %s in type %T", name, v)
		}
	}
	return value, nil
}

func isTrue(value any) bool {
	switch v := value.(type) {
	case bool:
		return v
	case string:
		return v != ""
	case float64:
		return v != 0
	case int:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return false
}

func printable(value any) string {
	if value == nil {
		return "<no value>"
	}
	return fmt.Sprint(value)
}
