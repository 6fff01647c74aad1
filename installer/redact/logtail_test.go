package redact

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLogTail(t *testing.T) {
	const at = "2026-11-22T10:57:27.123456789Z stderr "
	panics := at + "F panic: no such key\n" + at + "F \n" + at + "F goroutine 1 [running]:\n"
	for i := range 500 {
		panics += fmt.Sprintf("%sF main.f%d(0xc000)\n", at, i)
	}
	for _, c := range []struct {
		name, log string
		want      []string
	}{
		{"an empty log", "", nil},
		{"its last lines", at + "F one\n" + at + "F two\n" + at + "F three\n", []string{"two", "three"}},
		{"a long line in parts", at + "P one, \n" + at + "P two, \n" + at + "F three\n", []string{"one, two, three"}},
		{"both streams", strings.ReplaceAll(at, "stderr", "stdout") + "F one\n" + at + "F two\n", []string{"one", "two"}},
		{"stacks", panics, []string{"panic: no such key"}},
		{"usage text", at + "F flag provided but not defined: -x\n" + at + "F Usage: etcd [OPTION]...\n" + at + "F   -a string\n", []string{"flag provided but not defined: -x"}},
		{"usage text only", at + "F Usage: etcd\n" + at + "F   -a string\n", []string{"Usage: etcd", "  -a string"}},
		{"a log that is longer than what is read", strings.Repeat(at+"F "+strings.Repeat("x", 1000)+"\n", 400) + at + "F the end\n", []string{strings.Repeat("x", 1000), "the end"}},
		{"another format", "Nov 22 10:57:27 host program: hello\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "0.log")
			if err := os.WriteFile(file, []byte(c.log), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := LogTail(file, 2); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
	// The user of this host sees why a component ends; what leaves the host has no values.
	file := filepath.Join(t.TempDir(), "0.log")
	line := `"command failed" err="failed validate: NodePortAddresses[0]: Invalid value: \"no-range\": must be an IP range" https://robot:hunter2@r.example`
	if err := os.WriteFile(file, []byte(at+"F "+line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := LogTail(file, 1); !slices.Equal(got, []string{line}) {
		t.Errorf("%q", got)
	}
	if got := RedactedLogTail(file, 1); len(got) != 1 || strings.Contains(got[0], "hunter2") {
		t.Errorf("%q", got)
	}
	if got := LogTail(filepath.Join(t.TempDir(), "none.log"), 2); got != nil {
		t.Errorf("a file that does not exist: %q", got)
	}
}
