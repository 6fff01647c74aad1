package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// templateFuncs are the functions of text/template, without html, js, urlquery and call, and
// those that kubectl and kubeadm add: exists, base64decode.
var templateFuncs = map[string]func(args []any) (any, error){
	"print":   func(args []any) (any, error) { return fmt.Sprint(args...), nil },
	"println": func(args []any) (any, error) { return fmt.Sprintln(args...), nil },
	"printf": func(args []any) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("it needs a format")
		}
		format, ok := args[0].(string)
		if !ok {
			return nil, fmt.Errorf("the format %v is not a string", args[0])
		}
		return fmt.Sprintf(format, args[1:]...), nil
	},
	"not": func(args []any) (any, error) {
		if len(args) != 1 {
			return nil, errors.New("it takes one argument")
		}
		return !isTrue(args[0]), nil
	},
	"len": func(args []any) (any, error) {
		if len(args) == 1 {
			switch v := args[0].(type) {
			case string:
				return len(v), nil
			case []any:
				return len(v), nil
			case map[string]any:
				return len(v), nil
			}
		}
		return nil, errors.New("it takes a string, a list or a map")
	},
	"index": func(args []any) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("it needs an argument")
		}
		value, _, err := indexed(args[0], args[1:])
		return value, err
	},
	"exists": func(args []any) (any, error) {
		if len(args) == 0 {
			return nil, errors.New("it needs an argument")
		}
		value, found, err := indexed(args[0], args[1:])
		return err == nil && found && value != nil, nil
	},
	"slice": sliced,
	"base64decode": func(args []any) (any, error) {
		if len(args) == 1 {
			if text, ok := args[0].(string); ok {
				data, err := base64.StdEncoding.DecodeString(text)
				return string(data), err
			}
		}
		return nil, errors.New("it takes a string")
	},
	"eq": func(args []any) (any, error) {
		if len(args) < 2 {
			return nil, errors.New("missing argument for comparison")
		}
		for _, other := range args[1:] {
			if same, err := equal(args[0], other); err != nil || same {
				return same, err
			}
		}
		return false, nil
	},
	"ne": func(args []any) (any, error) {
		if len(args) != 2 {
			return nil, errors.New("it takes two arguments")
		}
		same, err := equal(args[0], args[1])
		return !same, err
	},
	"lt": comparison(func(order int) bool { return order < 0 }),
	"le": comparison(func(order int) bool { return order <= 0 }),
	"gt": comparison(func(order int) bool { return order > 0 }),
	"ge": comparison(func(order int) bool { return order >= 0 }),
}

// indexed returns value[keys[0]][keys[1]]…, and whether the last key exists.
func indexed(value any, keys []any) (any, bool, error) {
	found := true
	for _, key := range keys {
		switch v := value.(type) {
		case map[string]any:
			name, ok := key.(string)
			if !ok {
				return nil, false, fmt.Errorf("%v is not a key of a map", key)
			}
			value, found = v[name]
		case []any:
			i, ok := key.(int)
			if !ok || i < 0 || i >= len(v) {
				return nil, false, fmt.Errorf("index out of range: %v", key)
			}
			value = v[i]
		case string:
			i, ok := key.(int)
			if !ok || i < 0 || i >= len(v) {
				return nil, false, fmt.Errorf("index out of range: %v", key)
			}
			value = v[i]
		default:
			return nil, false, fmt.Errorf("can't index item of type %T", v)
		}
	}
	return value, found, nil
}

// sliced is the function slice: x[i:j] of a string or a list.
func sliced(args []any) (any, error) {
	if len(args) == 0 || len(args) > 3 {
		return nil, errors.New("it takes a string or a list, and up to two indexes")
	}
	text, isText := args[0].(string)
	list, isList := args[0].([]any)
	if !isText && !isList {
		return nil, fmt.Errorf("can't slice item of type %T", args[0])
	}
	bounds := []int{0, max(len(text), len(list))}
	for i, arg := range args[1:] {
		n, ok := arg.(int)
		if !ok || n < 0 || n > max(len(text), len(list)) {
			return nil, fmt.Errorf("index out of range: %v", arg)
		}
		bounds[i] = n
	}
	if bounds[0] > bounds[1] {
		return nil, fmt.Errorf("invalid slice index: %d > %d", bounds[0], bounds[1])
	}
	if isText {
		return text[bounds[0]:bounds[1]], nil
	}
	return list[bounds[0]:bounds[1]], nil
}

func comparison(is func(order int) bool) func([]any) (any, error) {
	return func(args []any) (any, error) {
		if len(args) != 2 {
			return nil, errors.New("it takes two arguments")
		}
		order, err := compare(args[0], args[1])
		return is(order), err
	}
}

// equal compares also booleans and nil.
func equal(a, b any) (bool, error) {
	if a == nil || b == nil {
		return a == nil && b == nil, nil
	}
	x, isBool := a.(bool)
	if y, ok := b.(bool); ok && isBool {
		return x == y, nil
	}
	order, err := compare(a, b)
	return order == 0, err
}

// compare orders two values of the same type. Go does not compare 1 with 1.0, and neither
// does this.
func compare(a, b any) (int, error) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			return strings.Compare(x, y), nil
		}
	case int:
		if y, ok := b.(int); ok {
			return cmp.Compare(x, y), nil
		}
	case float64:
		if y, ok := b.(float64); ok {
			return cmp.Compare(x, y), nil
		}
	}
	return 0, fmt.Errorf("incompatible types for comparison: %T and %T", a, b)
}
