package main

import (
	"fmt"
	"strings"

	"airlift/installer/config"
)

// extraArgs is a flag for the arguments of a component: NAME=VALUE,NAME=VALUE. It may be
// repeated.
type extraArgs struct{ args *config.Args }

func (extraArgs) Type() string { return "NAME=VALUE,..." }

func (e extraArgs) String() string {
	if e.args == nil {
		return ""
	}
	var list []string
	for _, arg := range *e.args {
		list = append(list, arg.Name+"="+arg.Value)
	}
	return strings.Join(list, ",")
}

func (e extraArgs) Set(text string) error {
	var args []config.Arg
	for _, pair := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(pair, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE; write a value with a comma into a configuration file", pair)
		}
		args = append(args, config.Arg{Name: name, Value: strings.TrimSpace(value)})
	}
	*e.args = append(*e.args, args...)
	return nil
}
