package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"airlift/builder/events"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/fakesites"
)

// eventTypes are the types of the events of docs/lock.md.
var eventTypes = map[string]any{
	events.EventStart: events.Start{}, events.EventPhase: events.Phase{}, events.EventDownloadStarted: events.DownloadStarted{},
	events.EventDownloadFinished: events.DownloadFinished{}, events.EventNote: events.Message{}, events.EventWarning: events.Message{},
	events.EventResult: events.Result{}, events.EventError: events.Error{},
}

// decodeEvents decodes each line of a stream strictly: as the type of its event, with no
// unknown field, no missing one and nothing after it.
func decodeEvents(t *testing.T, stream string) (list []any) {
	t.Helper()
	if !strings.HasSuffix(stream, "\n") {
		t.Fatalf("the last line has no end: %q", stream)
	}
	last := ""
	for line := range strings.Lines(stream) {
		var raw map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &raw); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		var head events.Head
		if err := json.Unmarshal([]byte(line), &head); err != nil {
			t.Fatal(err)
		}
		if at, err := time.Parse(time.RFC3339, head.Time); err != nil || !strings.HasSuffix(head.Time, "Z") || time.Since(at) > time.Hour || head.Time < last {
			t.Errorf("time %q after %q: %v", head.Time, last, err)
		}
		last = head.Time
		kind, ok := eventTypes[head.Event]
		if !ok {
			t.Fatalf("unknown event: %s", line)
		}
		e := reflect.New(reflect.TypeOf(kind))
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(e.Interface()); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		for n := range e.Elem().NumField() {
			name, omit, _ := strings.Cut(e.Elem().Type().Field(n).Tag.Get("json"), ",")
			if _, ok := raw[name]; !ok && name != "" && omit == "" {
				t.Errorf("%q has no field %q", line, name)
			}
		}
		list = append(list, e.Elem().Interface())
	}
	return list
}

// of returns the events of one type.
func of[T any](list []any) (found []T) {
	for _, e := range list {
		if v, ok := e.(T); ok {
			found = append(found, v)
		}
	}
	return found
}

func TestEvents(t *testing.T) {
	u := siteSites(t)
	s := siteShell(t, u)
	build := []string{"build", "--progress", "json", "--file", "site/bundle.yaml", "--launcher", "stub", "--installer", "stub", "--sbom", "spdx-json"}
	out, errs, code := s.run(build...)
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d, standard error %q", code, errs)
	}
	list := decodeEvents(t, out)
	first, ok := list[0].(events.Start)
	if !ok || first.FormatVersion != 1 || !slices.Equal(first.Platforms, []string{"linux/amd64"}) {
		t.Errorf("first: %+v", list[0])
	}
	var phases []string
	for _, p := range of[events.Phase](list) {
		phases = append(phases, p.Phase)
	}
	if want := []string{"resolve", "download", "list", "write", "verify"}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
	r, ok := list[len(list)-1].(events.Result)
	if !ok || len(of[events.Result](list)) != 1 {
		t.Fatalf("last: %+v", list[len(list)-1])
	}
	b, err := os.ReadFile(filepath.Join(s.dir, r.Path))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(b))
	if r.Size != int64(len(b)) || r.SHA256 != sum || r.KubernetesVersion != "v1.29.15" || r.Platform != "linux/amd64" ||
		r.Manifests != 1 || r.Files != 2 || r.Units != 1 || r.Lock != "site/bundle.lock" || len(r.LeftOut) != 0 {
		t.Errorf("%+v, the file has %d bytes and sha256 %s", r, len(b), sum)
	}
	for _, path := range append(r.SBOMs, r.Provenance) {
		if _, err := os.Stat(filepath.Join(s.dir, path)); err != nil {
			t.Error(err)
		}
	}

	// Each download has a start and an end, with the size that the site served and the digest
	// that it published.
	started := map[string]events.DownloadStarted{}
	for _, e := range of[events.DownloadStarted](list) {
		if started[e.Kind+e.Name].Name != "" {
			t.Errorf("started twice: %+v", e)
		}
		started[e.Kind+e.Name] = e
	}
	var downloaded int64
	finished := map[string]events.DownloadFinished{}
	for _, e := range of[events.DownloadFinished](list) {
		begin := started[e.Kind+e.Name]
		if e.From != events.Network || begin.Size != e.Size || begin.Source != e.Source || !strings.HasPrefix(e.Source, "http") {
			t.Errorf("started %+v, finished %+v", begin, e)
		}
		if !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(e.Digest) {
			t.Errorf("%+v", e)
		}
		downloaded += e.Size
		finished[e.Name] = e
	}
	if len(finished) != len(started) || len(finished) != r.Components+r.Images || downloaded != r.Downloaded {
		t.Errorf("%d started, %d finished, %d bytes; result %+v", len(started), len(finished), downloaded, r)
	}
	kubelet := u.Get("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")
	if e := finished["kubelet v1.29.15"]; e.Size != int64(len(kubelet)) || e.Digest != fmt.Sprintf("sha256:%x", sha256.Sum256(kubelet)) {
		t.Errorf("%+v", e)
	}

	// The second build takes all from the cache. Warnings and notes are events as well.
	out, errs, code = s.run(append(build, "--mirror", "example.com=https://example.org", "--lock", "other.lock", "--image", "docker.io/team/more:v1")...)
	list = decodeEvents(t, out)
	if code != 0 || errs != "" || len(of[events.DownloadStarted](list)) != 1 {
		t.Errorf("exit code %d, standard error %q, %d downloads", code, errs, len(of[events.DownloadStarted](list)))
	}
	cached := 0
	for _, e := range of[events.DownloadFinished](list) {
		if e.From == events.Cache && e.Size > 0 {
			cached++
		}
	}
	if cached != len(finished) {
		t.Errorf("%d of %d from the cache", cached, len(finished))
	}
	var notes, warnings []string
	for _, e := range of[events.Message](list) {
		if e.Event == events.EventNote {
			notes = append(notes, e.Message)
		} else {
			warnings = append(warnings, e.Message)
		}
	}
	has(t, "notes", strings.Join(notes, "\n"), "--mirror example.com was not used")
	has(t, "warnings", strings.Join(warnings, "\n"), "plain http")
}

// The last event of a build that fails is the error, whatever fails.
func TestEventsOfErrors(t *testing.T) {
	u := siteSites(t)
	s := siteShell(t, u)
	u.Remove("dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet")
	file := []string{"--file", "site/bundle.yaml", "--cni", "flannel", "--launcher", "stub", "--installer", "stub"}
	for _, c := range []struct {
		args          []string
		code          fault.Code
		message, hint string
	}{
		{file, fault.Failure, "kubelet", "check names and versions"},
		{append(slices.Clone(file), "--arch", "riscv64"), fault.Usage, "riscv64", "amd64, arm64"},
		{append(slices.Clone(file), "--compression", "most"), fault.Usage, "most", "fastest, default, best"},
		{[]string{"--nonsense"}, fault.Usage, "unknown flag: --nonsense", "bundle build --help"},
		{[]string{"extra"}, fault.Usage, "extra", "bundle build --help"},
	} {
		out, errs, code := s.run(append([]string{"build", "--progress", "json"}, c.args...)...)
		list := decodeEvents(t, out)
		e, ok := list[len(list)-1].(events.Error)
		if !ok || code != c.code || e.ExitCode != int(code) || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%v: exit code %d, %+v", c.args, code, list[len(list)-1])
		}
		if want := "error: " + e.Message + "\nhint: " + e.Hint + "\n"; errs != want {
			t.Errorf("%v: standard error\n%s\nwant\n%s", c.args, errs, want)
		}
	}
	if _, errs, code := s.run("build", "--progress", "xml"); code != fault.Usage || !strings.Contains(errs, "--progress json") {
		t.Errorf("%d: %s", code, errs)
	}
}

// Ctrl-C ends the stream with an error, and closing its reader ends the build.
func TestEventsOfInterruption(t *testing.T) {
	u := fakesites.New(t, "v1.29.15")
	s := newShell(t)
	began := make(chan struct{}, 2)
	u.Answer = func(w http.ResponseWriter, r *http.Request, target string) bool {
		if target != "cdn.dl.k8s.io/release/v1.29.15/bin/linux/amd64/kubelet" {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		w.(http.Flusher).Flush()
		began <- struct{}{}
		<-r.Context().Done()
		return true
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT)
	c := s.command(buildArgs(u, "--progress", "json")...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-began
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	c.Wait()
	list := decodeEvents(t, out.String())
	want := events.Error{Message: "interrupted", Hint: "downloads are kept; run the same command again to continue", ExitCode: 130}
	e, _ := list[len(list)-1].(events.Error)
	want.Head = e.Head
	if e != want || c.ProcessState.ExitCode() != 130 {
		t.Errorf("exit code %d, %+v", c.ProcessState.ExitCode(), list[len(list)-1])
	}
	if len(of[events.DownloadStarted](list)) == 0 || len(of[events.Result](list)) != 0 {
		t.Errorf("%+v", list)
	}

	c = s.command(buildArgs(u, "--progress", "json")...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.Stdout, c.Stderr = w, nil
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.Close()
	if c.Wait(); c.ProcessState.ExitCode() != int(fault.Interrupted) {
		t.Errorf("without a reader: exit code %d", c.ProcessState.ExitCode())
	}
}

// docs/lock.md lists all events and fields, and no others.
func TestEventsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/lock.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Follow a build in CI\n")
	want := map[string]bool{}
	for name, kind := range eventTypes {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(kind)) {
			if field, _, _ := strings.Cut(f.Tag.Get("json"), ","); field != "" && (f.Index[0] > 0 || !reflect.TypeOf(kind).Field(0).Anonymous) {
				want[name+" "+field] = true
			}
		}
		want[name] = true
	}
	event := ""
	for line := range strings.Lines(section) {
		m := regexp.MustCompile("^\\| (– )?`(\\w+)`(?:, `(\\w+)`)? \\|").FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[1] == "":
			if event = m[2]; want[event] {
				delete(want, event)
			} else if !slices.Contains([]string{"event", "time", "platform"}, event) {
				t.Errorf("no event %q", event)
			}
		default:
			for _, field := range m[2:] {
				if field != "" && !want[event+" "+field] {
					t.Errorf("event %s has no field %q", event, field)
				}
				delete(want, event+" "+field)
			}
		}
	}
	for missing := range want {
		t.Errorf("docs/lock.md does not list %q", missing)
	}
}
