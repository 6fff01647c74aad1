// Package measure looks at what happens on a lab's host while something is
// installed there, from outside as far as that goes, so that looking costs both
// ways of installing the same and next to nothing.
package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"airlift/scripts/lab"
)

// Usage is what one command took.
type Usage struct {
	Command string
	Wall    time.Duration
	CPU     time.Duration // user and system, of it and the children it waited for
	// Resident is the kernel's own peak of the largest of these processes, in
	// bytes (VmHWM). It counts pages of program files, too.
	Resident int64
	// Memory is the peak of all its processes together, in bytes, sampled:
	// anonymous and shared memory, also what nobody has mapped, such as the
	// content of a memfd.
	Memory int64
}

// GaugeGroup begins the name of the memory cgroup of a command under gauge.
const GaugeGroup = "gauge-"

const (
	gaugeProgram = "/root/gauge"
	gaugeFile    = "/root/gauge.json"
)

// Gauge is the prefix that has a command on a host measured.
var Gauge = []string{gaugeProgram, gaugeFile}

// BuildGauge builds the program for CopyGauge into a folder.
func BuildGauge(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "gauge")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "airlift/scripts/bench/gauge")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building gauge: %w: %s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

// CopyGauge brings the program to a host.
func CopyGauge(ctx context.Context, program string, h *lab.Host) error {
	_, err := h.CopyIn(ctx, program, gaugeProgram, 0o755)
	return err
}

// Usages returns what the commands under Gauge took since it was asked last.
func Usages(h *lab.Host) ([]Usage, error) {
	root, err := h.Root()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(root, gaugeFile)
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading what a command took: %w", err)
	}
	var list []Usage
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var u Usage
		if err := decoder.Decode(&u); err == io.EOF {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading what a command took: %w", err)
		}
		list = append(list, u)
	}
	return list, os.Remove(file)
}

// Run runs a command on a host under Gauge. An error ends with the end of what
// the command said.
func Run(ctx context.Context, h *lab.Host, argv ...string) (output string, u Usage, err error) {
	var out bytes.Buffer
	if err := h.Exec(ctx, nil, &out, &out, append(Gauge[:len(Gauge):len(Gauge)], argv...)...); err != nil {
		text := strings.TrimSpace(out.String())
		if n := len(text) - 4000; n > 0 {
			text = text[n:]
		}
		return out.String(), u, fmt.Errorf("%w:\n%s", err, text)
	}
	list, err := Usages(h)
	if err != nil {
		return out.String(), u, err
	}
	return out.String(), list[len(list)-1], nil
}
