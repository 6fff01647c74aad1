package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// featureGates is the flag --feature-gates: NAME=true,NAME=false.
type featureGates struct{ gates *map[string]bool }

func (featureGates) Type() string { return "NAME=bool,..." }

func (f featureGates) String() string {
	if f.gates == nil {
		return ""
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(*f.gates)) {
		list = append(list, name+"="+strconv.FormatBool((*f.gates)[name]))
	}
	return strings.Join(list, ",")
}

func (f featureGates) Set(value string) error {
	gates := map[string]bool{}
	for _, pair := range strings.Split(value, ",") {
		name, state, ok := strings.Cut(strings.TrimSpace(pair), "=")
		on, err := strconv.ParseBool(state)
		if !ok || err != nil {
			return fmt.Errorf("%q is not NAME=true or NAME=false", pair)
		}
		gates[name] = on
	}
	*f.gates = gates
	return nil
}
