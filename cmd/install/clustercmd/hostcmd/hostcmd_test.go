package hostcmd

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"airlift/cmd/output"
	"airlift/installer/multihost/agent"
	"airlift/installer/multihost/facts"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
)

// run runs a command with an input.
func run(t *testing.T, in string, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := New()
	output.Complete(cmd) // as the root command does
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// decode reads one document, in which no field is unknown.
func decode(t *testing.T, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil || d.More() {
		t.Errorf("%v in %q", err, text)
	}
}

func TestFactsAreJSON(t *testing.T) {
	out, err := run(t, "", "facts")
	if err != nil {
		t.Fatal(err)
	}
	var f facts.Facts
	if decode(t, out, &f); f.Hostname == "" {
		t.Error(out)
	}
}

func TestHoldPrintsItsHolder(t *testing.T) {
	rig.Root(t) // to lock this host
	out, err := run(t, "", "hold", "--who", "ann")
	if err != nil {
		t.Fatal(err)
	}
	var h agent.Held
	if decode(t, out, &h); !h.Held || h.Who != "ann" || h.Since.IsZero() {
		t.Error(out)
	}
}

// Pains 38 and 39: no input selects nothing, and an error does not repeat the input, which may be secret.
func TestRefusedInput(t *testing.T) {
	for _, c := range []struct{ in, args string }{
		{"", "nodes"}, {" \n", "wait"}, {"{}", "nodes"}, {`[{"name":"a","label":{}}]`, "nodes"}, {`["a"] ["b"]`, "wait"}, {"", "hold"},
		{`{"secret-token"`, "wait"}, {"", "credentials --delete --control-plane"}, {"", "facts now"},
	} {
		out, err := run(t, c.in, strings.Fields(c.args)...)
		if fault.ExitCode(err) != fault.Usage || strings.Contains(err.Error(), "secret-token") || out != "" {
			t.Errorf("%s with %q: %v, printed %q", c.args, c.in, err, out)
		}
	}
}
