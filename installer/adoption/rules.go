package adoption

import (
	"os"
	"strconv"
)

// A scope is where a row of the table applies.
type scope func(*view) bool

func everywhere(*view) bool    { return true }
func running(v *view) bool     { return v.Kubelet.PID != 0 }
func answered(v *view) bool    { return v.Cluster != nil }
func hasNode(v *view) bool     { return v.Cluster != nil && v.Cluster.Node != nil }
func hasStored(v *view) bool   { return v.stored != nil }
func isPlane(v *view) bool     { return v.plane }
func onPlane(v *view) bool     { return v.plane && v.config != nil }
func withCluster(v *view) bool { return v.plane && v.Cluster != nil }

// A finder finds items of a row: the words $1, $2 and so on in its texts, for each finding.
type finder func(*view) [][]string

// when finds one item without words.
func when(is func(*view) bool) finder { return func(v *view) [][]string { return given(is(v)) } }

// word finds one item with one word, unless that is "".
func word(of func(*view) string) finder { return func(v *view) [][]string { return single(of(v)) } }

// each finds an item for each word.
func each(of func(*view) []string) finder {
	return func(v *view) [][]string { return per(of(v), func(word string) [][]string { return given(true, word) }) }
}

// given is one item with words if a condition holds.
func given(holds bool, words ...string) [][]string {
	if !holds {
		return nil
	}
	return [][]string{words}
}

// single is one item with words, unless the first one is "".
func single(words ...string) [][]string { return given(words[0] != "", words...) }

// per has the items of each element of a list.
func per[T any](list []T, items func(T) [][]string) (all [][]string) {
	for _, one := range list {
		all = append(all, items(one)...)
	}
	return all
}

// find is a row of the table: what is odd, where, what an upgrade does about it, and what to do.
func find(name string, on scope, found finder, what, where, effect, hint string) func(*view) {
	return row((*view).find, name, on, found, what, where, effect, hint)
}

// refuse is a row of the table: why a node cannot be adopted.
func refuse(name string, on scope, found finder, what, where, why, hint string) func(*view) {
	return row((*view).refuse, name, on, found, what, where, why, hint)
}

func row(report func(v *view, name, what, where, effect, hint string), name string, on scope, found finder, what, where, effect, hint string) func(*view) {
	return func(v *view) {
		if !on(v) {
			return
		}
		for _, words := range found(v) {
			fill := func(text string) string {
				return os.Expand(text, func(name string) string {
					if i, err := strconv.Atoi(name); err == nil {
						return words[i-1]
					}
					return v.word(name)
				})
			}
			report(v, name, fill(what), fill(where), fill(effect), fill(hint))
		}
	}
}

// word is a word of the texts that depends only on the node.
func (v *view) word(name string) string {
	switch name {
	case "config":
		return v.configFile
	case "containerd":
		return containerdConfig(v)
	case "name":
		return strconv.Quote(v.name)
	case "node":
		return v.Cluster.Node.Name
	case "pki":
		return v.config.CertificatesDir
	case "sandbox":
		return v.Runtime.Info.SandboxImage
	case "server":
		return otherServer(v)
	case "socket":
		return v.socket()
	case "target":
		return v.Target
	}
	panic("no word $" + name)
}
