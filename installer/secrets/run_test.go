package secrets

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/nacl/secretbox"

	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// A site is a Cluster of several control planes and an etcd, in which each operation may be the last one of a run. The run is always on
// the first control plane.
type site struct {
	t       *testing.T
	planes  []*Keys // what each API server has
	follows []int   // the change that each control plane has followed
	change  int     // the last one
	stored  *Keys   // what the cluster keeps for control planes that follow
	next    *Keys   // of an unfinished change
	data    map[string]string
	left    int // operations until the run is killed; negative: never
}

var errKilled = errors.New("killed")

// step is the place of a kill. All servers must be able to read all data there.
func (s *site) step() error {
	s.t.Helper()
	for key, value := range s.data {
		for i, k := range s.planes {
			if reason := unreadable(k, key, value); reason != "" {
				s.t.Fatalf("control plane %d: %s", i, reason)
			}
		}
	}
	if s.left == 0 {
		return errKilled
	}
	s.left--
	return nil
}

func unreadable(k *Keys, key, value string) string {
	scan := NewScan(k)
	scan.Add(key, []byte(value))
	return strings.Join(scan.Unreadable, "")
}

// write stores a Secret as an API server does.
func (s *site) write(plane int, key string) {
	k := s.planes[plane]
	if k.Writes() == "" {
		s.data[key] = "k8s\x00 plain"
		return
	}
	nonce := [24]byte{byte(plane)}
	s.data[key] = k.Writes() + string(secretbox.Seal(nonce[:], []byte("a value"), &nonce, &k.Active[0].Secret))
}

func (s *site) Keys() (*Keys, error) { return s.planes[0], s.step() }

func (s *site) Behind(context.Context) (names []string, err error) {
	for i := range s.planes {
		if s.follows[i] != s.change {
			names = append(names, fmt.Sprint("cp", i))
		}
	}
	return names, s.step()
}

func (s *site) Walk(_ context.Context, visit func(string, []byte)) error {
	for key, value := range s.data {
		visit(key, []byte(value))
	}
	return s.step()
}

func (s *site) Touch(_ context.Context, names []string) error {
	for _, name := range names {
		if err := s.step(); err != nil {
			return err
		}
		s.write(0, "/registry/secrets/"+name)
	}
	return nil
}

func (s *site) Change(_ context.Context, k *Keys) error {
	s.next = k
	if err := s.step(); err != nil {
		return err
	}
	s.planes[0] = k
	if err := s.step(); err != nil {
		return err
	}
	s.change++
	s.follows[0], s.stored, s.next = s.change, k, nil
	return s.step()
}

func (s *site) Resume(ctx context.Context) error {
	if s.next == nil {
		return s.step()
	}
	return s.Change(ctx, s.next)
}

// follow lets one control plane follow, as reconfigure node does.
func (s *site) follow() bool {
	for i := range s.planes {
		if s.follows[i] != s.change {
			s.planes[i], s.follows[i] = s.stored, s.change
			return true
		}
	}
	return false
}

// reach repeats a command until it is done, which is killed after kill operations each time. Other control planes follow one by one, and
// write Secrets in between. Killed before its first operation each time, it would never end: each run has one operation more.
func (s *site) reach(g Goal, kill int) (runs int) {
	s.t.Helper()
	for ; runs < 500; runs++ {
		if s.left = kill; kill >= 0 {
			s.left += runs
		}
		for i := range s.planes {
			s.write(i, fmt.Sprintf("/registry/secrets/of/cp%d", i))
		}
		err := Run(s.t.Context(), s, g, &workflow.Console{Out: io.Discard})
		s.left = -1
		switch {
		case err == nil: // it is done: a script that runs it until then does not begin another rotation
			for s.follow() {
			}
			return runs
		case errors.Is(err, errKilled):
		case fault.ExitCode(err) == fault.Waiting:
			if !s.follow() {
				s.t.Fatalf("it waits for nobody: %v", err)
			}
		default:
			s.t.Fatalf("%s, run %d: %v", g, runs, err)
		}
	}
	s.t.Fatalf("%s does not end", g)
	return 0
}

func newSite(t *testing.T, planes int) *site {
	s := &site{t: t, planes: make([]*Keys, planes), follows: make([]int, planes), data: map[string]string{}, left: -1}
	for i := range 30 {
		s.write(i%planes, fmt.Sprintf("/registry/secrets/ns%d/s%d", i%3, i))
	}
	return s
}

// stored are the labels of all values.
func (s *site) labels() []string {
	scan := NewScan(s.planes[0])
	for key, value := range s.data {
		scan.Add(key, []byte(value))
	}
	return scan.Labels()
}

// TestKilledAnywhere: with one, two and three control planes, each goal is reached when each run is killed after n operations, also if
// servers write Secrets meanwhile. At each operation, each server can read each Secret (site.step).
func TestKilledAnywhere(t *testing.T) {
	for planes := 1; planes <= 3; planes++ {
		for kill := -1; kill < 45; kill++ {
			s := newSite(t, planes)
			s.reach(Enable, kill)
			for _, k := range s.planes {
				if k.Writes() == "" {
					t.Fatalf("%d control planes, killed after %d: not all encrypt", planes, kill)
				}
			}
			first := s.planes[0].Active[0]
			s.reach(Rotate, kill)
			if got := s.planes[0]; len(got.Active) != 1 || got.Active[0] == first || !slices.Contains(got.Retired, first) {
				t.Fatalf("%d control planes, killed after %d: %v", planes, kill, names(got.Active))
			}
			if got := s.labels(); !slices.Equal(got, []string{"secretbox " + s.planes[0].Active[0].Name}) {
				t.Fatalf("%d control planes, killed after %d: stored as %q", planes, kill, got)
			}
			s.reach(Disable, kill)
			if got := s.labels(); !slices.Equal(got, []string{Plain}) || len(s.planes[0].Active) > 0 {
				t.Fatalf("%d control planes, killed after %d: stored as %q with %v", planes, kill, got, names(s.planes[0].Active))
			}
		}
	}
}

// TestWrongKey: a value that the key with its name does not decrypt stops a rotation before a key is removed. The error names the
// Secret and the key, and has no key.
func TestWrongKey(t *testing.T) {
	s := newSite(t, 1)
	s.reach(Enable, -1)
	other := *s.planes[0]
	other.Active = []Key{{Name: other.Active[0].Name, Secret: [32]byte{1}}}
	own := s.planes[0]
	s.planes[0] = &other
	s.write(0, "/registry/secrets/default/wrong")
	s.write(0, "/registry/secrets/default/also")
	s.planes[0] = own
	scan := NewScan(own)
	for key, value := range s.data {
		scan.Add(key, []byte(value))
	}
	slices.Sort(scan.Unreadable)
	if len(scan.Unreadable) != 2 || !strings.HasPrefix(scan.Unreadable[1], "default/wrong: ") || !strings.Contains(scan.Unreadable[1], own.Active[0].Name) || !strings.Contains(scan.Unreadable[1], "other bytes") {
		t.Errorf("%q", scan.Unreadable)
	}
	value := strings.Replace(s.data["/registry/secrets/default/wrong"], own.Active[0].Name, "airlift-9-00000000", 1)
	if reason := unreadable(own, "/registry/secrets/a/b", value); !strings.Contains(reason, "a/b: it is encrypted with secretbox airlift-9-00000000, which the API servers do not have") {
		t.Errorf("%q", reason)
	}
	fixed := &fixed{site: s}
	err := Run(t.Context(), fixed, Rotate, &workflow.Console{Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "2 Secrets cannot be read, so no key is removed") || len(s.planes[0].Active) != 2 {
		t.Errorf("%v, keys %v", err, names(s.planes[0].Active))
	}
}

// fixed is a site whose servers read what they cannot.
type fixed struct{ *site }

func (f *fixed) Keys() (*Keys, error)                     { return f.planes[0], nil }
func (f *fixed) Behind(context.Context) ([]string, error) { return nil, nil }
func (f *fixed) Resume(context.Context) error             { return nil }
func (f *fixed) Change(_ context.Context, k *Keys) error  { f.planes[0] = k; return nil }
func (f *fixed) Touch(context.Context, []string) error    { return nil }
func (f *fixed) Walk(_ context.Context, v func(string, []byte)) error {
	for key, value := range f.data {
		v(key, []byte(value))
	}
	return nil
}

// TestAnotherWriter: a control plane that still writes with the former key is found, and the key is not removed.
func TestAnotherWriter(t *testing.T) {
	s := newSite(t, 1)
	s.reach(Enable, -1)
	err := Run(t.Context(), &stubborn{site: s, former: s.planes[0]}, Rotate, &workflow.Console{Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "again and again:\n  - of/stubborn") || len(s.planes[0].Active) != 2 {
		t.Errorf("%v, keys %v", err, names(s.planes[0].Active))
	}
}

// stubborn is a site in which another server, which is not known, writes with the former key.
type stubborn struct {
	*site
	former *Keys
}

func (s *stubborn) Walk(ctx context.Context, visit func(string, []byte)) error {
	now := s.planes[0]
	s.planes[0] = s.former
	s.write(0, "/registry/secrets/of/stubborn")
	s.planes[0] = now
	return s.site.Walk(ctx, visit)
}

// TestNoKeyIsShown: nothing that a run prints, and no status, has a key.
func TestNoKeyIsShown(t *testing.T) {
	var out bytes.Buffer
	s := newSite(t, 1)
	console := &workflow.Console{Out: &out, Verbosity: 2}
	var keys []Key
	for _, g := range []Goal{Enable, Rotate, Rotate, Disable} {
		if err := Run(t.Context(), s, g, console); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, slices.Concat(s.planes[0].Active, s.planes[0].Retired)...)
		status := &Status{Writes: s.planes[0].Writes(), Reads: names(s.planes[0].Active), Stored: map[string]int{Plain: 1}}
		if err := status.Write(&out); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) < 4 || !strings.Contains(out.String(), "100 %") {
		t.Errorf("%d keys:\n%s", len(keys), &out)
	}
	for _, k := range keys {
		for _, form := range []string{string(k.Secret[:]), fmt.Sprintf("%x", k.Secret), strings.Trim(fmt.Sprint(k.Secret), "[]")} {
			if strings.Contains(out.String(), form) || strings.Contains(out.String(), secretOf(k)) {
				t.Errorf("the output has key %s", k.Name)
			}
		}
	}
}

// secretOf is a key as the file has it.
func secretOf(k Key) string {
	_, rest, _ := strings.Cut(string((&Keys{Active: []Key{k}}).Text()), "secret: ")
	secret, _, _ := strings.Cut(rest, "\n")
	return secret
}
