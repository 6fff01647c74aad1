// Package measure measures installations on lab hosts, from outside of the hosts where
// possible, so that the cost of measuring is small and the same for all of them.
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

// Usage is the resource use of one command.
type Usage struct {
	Wall time.Duration
	CPU  time.Duration // user and system, with the children it waited for
	// Memory is the kernel's peak of resident memory of the largest of its processes,
	// in bytes (VmHWM). It includes mapped executables.
	Memory int64
}

const (
	gaugeProgram = "/root/gauge"
	gaugeFile    = "/root/gauge.json"
)

// Gauge is the prefix of a measured command on a host.
var Gauge = []string{gaugeProgram, gaugeFile}

// BuildGauge builds the binary for CopyGauge in a directory.
func BuildGauge(ctx context.Context, dir string) (string, error) {
	program := filepath.Join(dir, "gauge")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "airlift/scripts/bench/gauge")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building gauge: %w: %s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

// CopyGauge copies the binary to a host.
func CopyGauge(ctx context.Context, program string, h *lab.Host) error {
	_, err := h.CopyIn(ctx, program, gaugeProgram, 0o755)
	return err
}

// Usages returns the resource use of the commands under Gauge since the last call.
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

// Run runs a command on a host under Gauge. An error includes the end of the command's
// output.
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
