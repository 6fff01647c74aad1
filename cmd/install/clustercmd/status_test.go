package clustercmd

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"airlift/cmd/install/clustercmd/overview"
	"airlift/installer/endpoint/vip"
	"airlift/installer/status"
)

// TestWatch: each change is a line, a host that is off hides no other one, and Ctrl-C is no error, also if a host is skipped.
func TestWatch(t *testing.T) {
	defer func(was time.Duration) { watchInterval = was }(watchInterval)
	watchInterval = time.Millisecond
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.ctx = ctx
	var phase atomic.Int32
	c.printed = func(text string) {
		for i, sign := range []string{"CONTROL PLANES", "w1: Ready → NotReady", "w2: Ready → no answer: no route to host", "w2: no answer → Ready"} {
			if strings.Contains(text, sign) && phase.CompareAndSwap(int32(i), int32(i+1)) && i == 3 {
				cancel()
			}
		}
	}
	c.w.NotReady = map[string]bool{}
	c.w.Kill = func(int) int { // under the lock of the model
		w2 := c.w.Hosts["w2"]
		switch phase.Load() {
		case 1:
			c.w.NotReady["w1"] = true
		case 2:
			if w2.Off == nil {
				w2.Off, c.w.Lost["w2"] = errors.New("no route to host"), true
			}
		case 3:
			w2.Off = nil
		}
		return 0
	}
	out, code := c.run("", "status", "--watch", "--skip", "cp3")
	if code != 0 || phase.Load() != 4 || strings.Contains(out, "error: ") {
		t.Errorf("phase %d, exit code %d\n%s", phase.Load(), code, out)
	}
	if strings.Count(out, "w1: Ready → NotReady") != 1 || strings.Contains(out, "\x1b") {
		t.Error(out)
	}
}

// TestWatchDocuments: with -o json, each change is a document.
func TestWatchDocuments(t *testing.T) {
	defer func(was time.Duration) { watchInterval = was }(watchInterval)
	watchInterval = time.Millisecond
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.ctx = ctx
	var documents atomic.Int32
	c.printed = func(text string) {
		if strings.HasPrefix(text, "{") && documents.Add(1) == 2 {
			cancel()
		}
	}
	c.w.NotReady = map[string]bool{}
	c.w.Kill = func(int) int {
		c.w.NotReady["w1"] = documents.Load() > 0
		return 0
	}
	out, code := c.run("", "status", "-w", "-o", "json")
	_, out, _ = strings.Cut("\n"+out, "\n{") // before it is progress
	d := json.NewDecoder(strings.NewReader("{" + out))
	for i, healthy := range []bool{true, false} {
		var s overview.Site
		if err := d.Decode(&s); err != nil || s.Healthy != healthy || code != 0 {
			t.Errorf("document %d, exit code %d: healthy %v, %v", i, code, s.Healthy, err)
		}
	}
}

// TestScreen: on a terminal, the picture has a screen of its own, which it does not leave; the last one stays on the other.
func TestScreen(t *testing.T) {
	var b bytes.Buffer
	v := &view{out: &b, screen: &b, size: func() (int, int) { return 80, 10 }}
	state := &overview.Site{Name: "site"}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		state.Hosts = append(state.Hosts, overview.Host{Name: name, Role: "worker", Group: "worker", Error: "\x1b[2Jno route to host"})
	}
	state.Complete()
	if err := errors.Join(v.begin(state), v.show(state, state)); err != nil {
		t.Fatal(err)
	}
	drawn := b.String()
	v.end(state)
	if n := strings.Count(drawn, "\n"); !strings.HasPrefix(drawn, otherScreen+home) || n != 2*9 {
		t.Errorf("%d lines: %q", n, drawn)
	}
	if left := b.String()[len(drawn):]; !strings.HasPrefix(left, mainScreen) || !strings.Contains(left, "! g") || strings.Contains(b.String(), "\x1b[2J") {
		t.Errorf("%q", left)
	}
}

// archiveOf is the archive of a doctor with one file.
func archiveOf(t *testing.T, name, text string) string {
	t.Helper()
	var b bytes.Buffer
	compressed := gzip.NewWriter(&b)
	w := tar.NewWriter(compressed)
	if err := writeEntry(w, name, []byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestReport: the page has what the hosts report, and why a host has nothing. It has no secret, and leaves nothing on the hosts.
func TestReport(t *testing.T) {
	c := newConsole(t)
	c.want(0, nil, "", "apply", "--yes")
	before := c.w.State()
	const token = "abcdef.0123456789abcdef"
	c.w.Hosts["cp1"].Status = `{"problems":[{"part":"api","message":"kubeadm join with ` + token + ` failed"}],"certificates":[{"name":"apiserver","expires":"2027-01-02T00:00:00Z"}],"lastBackup":{"path":"/b.tar.age","time":"2026-11-28T00:00:00Z"}}`
	c.w.Hosts["cp1"].Archive = archiveOf(t, "doctor-cp1/suspicions.json", `[{"name":"disk-full","saw":"the file system is <full>","why":"w","fix":"f"}]`)
	c.w.Hosts["cp2"].Archive = "no archive"
	c.w.Hosts["w2"].Off = errors.New("no route to host")
	c.want(0, []string{"The report is "}, "", "report", "--html", c.path("a.html"))
	page, err := os.ReadFile(c.path("a.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"w2</strong> <span>does not answer: no route to host", "kubeadm join with abcdef.[redacted] failed", "2027-01-02", "/b.tar.age", "the file system is &lt;full&gt;",
		"cp2</strong> <span>the doctor could not be asked: reading the archive of the host", "No plan could be made", `<section id="timeline">`} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(string(page), token) {
		t.Error("a token is in the report")
	}
	if info, err := os.Stat(c.path("a.html")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if now := c.w.State(); now != before {
		t.Errorf("the report changed hosts:\n%s\nbefore:\n%s", now, before)
	}
	c.w.Hosts["w2"].Off = nil
	out := c.want(0, []string{"<!DOCTYPE html>", "Nothing: the hosts match cluster.yaml and the file."}, "", "report", "--html", "-")
	if strings.Contains(out, "The report is ") {
		t.Error(out)
	}
	c.want(2, []string{"choose a file in an existing directory"}, "", "report", "--html", c.path("no/a.html"))
	t.Chdir(c.dir)
	c.want(0, []string{"The report is report-site-", ".html"}, "", "report")
}

// TestHideSecrets: what no secret is stays as it is.
func TestHideSecrets(t *testing.T) {
	s := &status.Status{}
	fill(reflect.ValueOf(s).Elem())
	s.Endpoint = &status.Endpoint{VIP: &vip.Status{Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}, Held: true, Holders: []vip.Holder{{Name: "cp1"}}}}
	site := &overview.Site{Hosts: []overview.Host{{Name: "cp1", Role: "control-plane", Error: "x", Status: s}}}
	if err := hideSecrets(site); err != nil {
		t.Fatal(err)
	}
	got := site.Hosts[0].Status
	for name, pair := range map[string][2]any{
		"problems": {got.Problems, s.Problems}, "node": {got.Node, s.Node}, "versions": {got.Versions, s.Versions}, "certificates": {got.Certificates, s.Certificates},
		"etcd": {got.Etcd, s.Etcd}, "backup": {got.LastBackup, s.LastBackup}, "holders": {got.Endpoint.VIP.Holders, s.Endpoint.VIP.Holders}, "addresses": {got.Endpoint.VIP.Addresses, s.Endpoint.VIP.Addresses},
		"unknown": {got.Unknown, s.Unknown},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %+v, want %+v", name, pair[0], pair[1])
		}
	}
}

// fill gives all fields of v a value.
func fill(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
	case v.Type() == reflect.TypeFor[*status.Endpoint]():
	case v.Kind() == reflect.String:
		v.SetString("text")
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(7)
	case v.CanUint():
		v.SetUint(7)
	case v.CanFloat():
		v.SetFloat(7)
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case v.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.SetMapIndex(reflect.ValueOf("part"), value)
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}
