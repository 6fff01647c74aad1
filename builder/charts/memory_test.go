//go:build linux && !race

package charts_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/builder/charts"
	"airlift/internal/fault"
)

func TestMemoryOfARendering(t *testing.T) {
	for name, template := range map[string]string{
		"one string": `{{ repeat 2000000000 "x" }}`,
		"loop":       `{{ range until 1000000 }}{{ range until 1000000 }}xxxxxxxxxxxxxxxx{{ end }}{{ end }}`,
	} {
		dir := t.TempDir()
		write(t, dir, small)
		write(t, dir, map[string]string{"templates/x.yaml": template})
		_, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes})
		if err == nil || !strings.Contains(err.Error(), "chart") || fault.Hint(err) == "" || len(err.Error()) > 1000 {
			t.Errorf("%s: %.1000v (hint %q)", name, err, fault.Hint(err))
		}
	}
}

func TestMemoryOfValues(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, small)
	large := filepath.Join(t.TempDir(), "large.yaml")
	write(t, filepath.Dir(large), map[string]string{"large.yaml": ""})
	if err := os.Truncate(large, 4<<30); err != nil {
		t.Fatal(err)
	}
	for _, values := range []string{large, "/dev/zero"} {
		_, err := client(t).Render(context.Background(), charts.Chart{Name: dir, KubernetesVersion: kubernetes, ValueFiles: []string{values}})
		if err == nil || !strings.Contains(err.Error(), "memory") {
			t.Errorf("%s: %v", values, err)
		}
	}
}
