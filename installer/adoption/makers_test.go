package adoption_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/adoption"
	"airlift/scripts/fixtures/layouts"
	_ "airlift/scripts/fixtures/seed"
)

// show returns a report for messages.
func show(r adoption.Report) string {
	var out strings.Builder
	fmt.Fprintf(&out, "maker %q\n", r.Maker)
	for _, f := range r.Refusals {
		fmt.Fprintf(&out, "  REFUSED %s: %s (%s): %s; %s\n", f.Name, f.What, f.Where, f.Effect, f.Hint)
	}
	for _, f := range r.Findings {
		fmt.Fprintf(&out, "  %s: %s (%s): %s; %s\n", f.Name, f.What, f.Where, f.Effect, f.Hint)
	}
	return out.String()
}

// steps are upgrades from a version to the next one, with each version of the stored configuration.
var steps = [][2]string{{"v1.29.15", "v1.30.4"}, {"v1.30.14", "v1.31.14"}, {"v1.33.13", "v1.34.9"}, {"v1.35.4", "v1.36.3"}, {"v1.36.3", "v1.37.1"}, {"v1.37.1", "v1.37.2"}}

// TestMakers writes the layout of each maker to a directory, and recognises it there.
func TestMakers(t *testing.T) {
	for name, layout := range layouts.Adopted() {
		for i, step := range steps {
			if name != adoption.Kubeadm && i > 0 && i < len(steps)-2 {
				continue // as kubeadm
			}
			for _, worker := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s worker %t", name, step[0], worker), func(t *testing.T) {
					l := layout(layouts.Options{Version: step[0], Target: step[1], Worker: worker})
					dir := t.TempDir()
					if err := l.Write(dir); err != nil {
						t.Fatal(err)
					}
					r := adoption.Recognise(l.InputOf(os.DirFS(dir)))
					want := l.Maker
					if want == "kURL" && worker { // its kubelet may not read kURL's objects: one mark is left
						want = adoption.Kubeadm
					}
					if r.Maker != want || !r.Adoptable() {
						t.Fatalf("want %s, adoptable: %s", want, show(r))
					}
					if memory := adoption.Recognise(l.Input()); !reflect.DeepEqual(r, memory) {
						t.Errorf("in memory: %s\nin the directory: %s", show(memory), show(r))
					}
					a := r.Adoption
					if a.Maker != want || a.Kubernetes != step[0] || a.Kubelet.Binary != l.Kubelet.Exe || !slices.Equal(a.Kubelet.Args, l.Kubelet.Args) || len(a.Notes) != len(r.Findings) {
						t.Errorf("the ledger would get %+v", a)
					}
					for _, file := range []string{"/var/lib/kubelet/kubeadm-flags.env", "/etc/kubernetes/kubelet.conf"} {
						if len(a.Files[file]) != 64 {
							t.Errorf("no checksum of %s", file)
						}
					}
					if _, ok := a.Files["/usr/local/bin/kubelet"]; ok != (l.Kubelet.Exe == "/usr/local/bin/kubelet") {
						t.Errorf("%s runs, and the files to replace are %q", l.Kubelet.Exe, slices.Sorted(maps.Keys(a.Files)))
					}
				})
			}
		}
	}
}

// TestRefusedMakers: layouts that are not kubeadm's are refused, and nothing else is reported of them.
func TestRefusedMakers(t *testing.T) {
	for name, layout := range layouts.Refused() {
		r := adoption.Recognise(layout().Input())
		if r.Maker != name || len(r.Refusals) != 1 || r.Refusals[0].Name != "Maker" || !strings.HasPrefix(r.Refusals[0].What, name+" made this node") || r.Refusals[0].Hint == "" {
			t.Errorf("%s: %s", name, show(r))
		}
		if len(r.Findings) > 0 {
			t.Errorf("%s: findings of a layout that is not kubeadm's: %s", name, show(r))
		}
	}
	if is := slices.Sorted(maps.Keys(layouts.Refused())); !slices.Equal(is, slices.Sorted(slices.Values(adoption.RefusedMakers()))) {
		t.Errorf("the layouts are %q", is)
	}
}

// own returns the marks that only one maker has.
func own(maker string) (list []string) {
	holders := map[string]int{}
	for _, marks := range adoption.Marks() {
		for _, m := range marks {
			holders[m]++
		}
	}
	for _, m := range adoption.Marks()[maker] {
		if holders[m] == 1 {
			list = append(list, m)
		}
	}
	return list
}

// base returns a control plane of kubeadm. All have the same certificates.
func base() *layouts.Layout { return baseOnce().Clone() }

var baseOnce = sync.OnceValue(func() *layouts.Layout {
	return layouts.Kubeadm(layouts.Options{Version: "v1.36.3", Target: "v1.37.1"})
})

// TestMixtures: a node with two own marks of each of two makers is refused, for every pair.
func TestMixtures(t *testing.T) {
	all := slices.Sorted(maps.Keys(adoption.Marks()))
	for i, a := range all {
		for _, b := range all[i+1:] {
			l := base()
			for _, mark := range append(own(a)[:2:2], own(b)[:2]...) {
				l.Plant(mark)
			}
			r := adoption.Recognise(l.Input())
			refused := slices.Contains(adoption.RefusedMakers(), a) || slices.Contains(adoption.RefusedMakers(), b)
			found := slices.ContainsFunc(r.Refusals, func(f adoption.Finding) bool {
				both := strings.Contains(f.What, a) && strings.Contains(f.What, b)
				one := strings.Contains(f.What, a) || strings.Contains(f.What, b)
				return f.Name == "Maker" && (both || refused && one)
			})
			if !found {
				t.Errorf("%s and %s: %s", a, b, show(r))
			}
		}
	}
}

// TestTwoMarksNameAMaker: each pair of a maker's own marks is enough, and one of them with a shared one.
func TestTwoMarksNameAMaker(t *testing.T) {
	for maker, marks := range adoption.Marks() {
		mine := own(maker)
		if len(mine) < 2 {
			t.Fatalf("%s has only the marks %q of its own", maker, mine)
		}
		for i, a := range marks {
			for _, b := range marks[i+1:] {
				l := base()
				l.Plant(a)
				l.Plant(b)
				r, want := adoption.Recognise(l.Input()), maker
				if !slices.Contains(mine, a) && !slices.Contains(mine, b) { // they may be another maker's
					want = adoption.Kubeadm
				}
				if r.Maker != want {
					t.Errorf("%s, with %s and %s: %s", maker, a, b, show(r))
				}
			}
		}
	}
}

// TestGeneratedMarks plants random marks on a node in random order. One mark never names a maker, and the verdict does not
// depend on the order of the marks, of the makers or of the checks.
func TestGeneratedMarks(t *testing.T) {
	var all []string
	for _, marks := range adoption.Marks() {
		all = append(all, marks...)
	}
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	rapid.Check(t, func(t *rapid.T) {
		chosen := rapid.SliceOfNDistinct(rapid.SampledFrom(all), 0, 5, rapid.ID).Draw(t, "marks")
		plant := func(marks []string) adoption.Report {
			l := base()
			for _, m := range marks {
				l.Plant(m)
			}
			return adoption.Recognise(l.Input())
		}
		r := plant(chosen)
		if len(chosen) < 2 && (r.Maker != adoption.Kubeadm || !r.Adoptable()) {
			t.Fatalf("with %q: %s", chosen, show(r))
		}
		marked := slices.ContainsFunc(r.Findings, func(f adoption.Finding) bool { return f.Name == "Mark" })
		if marked != (len(chosen) == 1) && len(chosen) < 2 {
			t.Fatalf("with %q: %s", chosen, show(r))
		}
		// A maker is named only by two of its marks.
		for maker, marks := range adoption.Marks() {
			n := len(slices.DeleteFunc(slices.Clone(chosen), func(m string) bool { return !slices.Contains(marks, m) }))
			if named := r.Maker == maker || slices.ContainsFunc(r.Refusals, func(f adoption.Finding) bool { return f.Name == "Maker" && strings.HasPrefix(f.What, maker+" made") }); named && n < 2 {
				t.Fatalf("%s is named with %q: %s", maker, chosen, show(r))
			}
		}
		restore := adoption.Shuffle(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)))
		other := plant(rapid.Permutation(chosen).Draw(t, "again"))
		restore()
		if !reflect.DeepEqual(r, other) {
			t.Fatalf("in another order, with %q: %s\nand %s", chosen, show(r), show(other))
		}
	})
}

// TestUnknownMaker: without kubeadm's two marks, nothing is adopted.
func TestUnknownMaker(t *testing.T) {
	for name, remove := range map[string]func(*layouts.Layout){
		"no kubeadm-config": func(l *layouts.Layout) { delete(l.Cluster.ConfigMaps, "kube-system/kubeadm-config") },
		"no flags":          func(l *layouts.Layout) { delete(l.Files, "/var/lib/kubelet/kubeadm-flags.env") },
	} {
		l := base()
		remove(l)
		if r := adoption.Recognise(l.Input()); r.Adoptable() || r.Maker != "" || !slices.ContainsFunc(r.Refusals, func(f adoption.Finding) bool { return f.Name == "Maker" }) {
			t.Errorf("%s: %s", name, show(r))
		}
	}
}
