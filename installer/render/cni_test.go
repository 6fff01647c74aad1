package render_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"airlift/installer/render"
	"airlift/scripts/fixtures/rig"
	"airlift/scripts/oracle"
)

// TestRealPluginsConnectAPod runs the real CNI plugins with Airlift's
// configuration, for a pod's network namespace.
func TestRealPluginsConnectAPod(t *testing.T) {
	bridge := rig.Component(t, oracle.Version, "bridge")
	if !inOwnNamespaces(t) {
		return
	}
	// The plugins store addresses below /var/lib, and ip stores namespaces in
	// /run.
	for _, dir := range []string{"/run", "/var/lib"} {
		run(t, "mount", "-t", "tmpfs", "tmpfs", dir)
	}
	run(t, "ip", "link", "set", "lo", "up")
	run(t, "ip", "netns", "add", "pod")

	data, err := render.CNIConflist(oracle.Plain(oracle.Version), []string{"10.244.3.0/24", "fd00:10:244:3::/64"})
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	call := func(command string, plugins []map[string]any, result any) {
		for _, plugin := range plugins {
			plugin["cniVersion"], plugin["name"] = list.CNIVersion, list.Name
			if result != nil {
				plugin["prevResult"] = result
			}
			if plugin["type"] == "portmap" {
				plugin["runtimeConfig"] = map[string]any{"portMappings": []map[string]any{
					{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
			}
			input, err := json.Marshal(plugin)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(filepath.Join(filepath.Dir(bridge), plugin["type"].(string)))
			cmd.Stdin = bytes.NewReader(input)
			cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=pod", "CNI_NETNS=/run/netns/pod",
				"CNI_IFNAME=eth0", "CNI_PATH="+filepath.Dir(bridge))
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", command, plugin["type"], err, out)
			}
			if len(out) > 0 {
				result = json.RawMessage(out)
			}
		}
	}
	call("ADD", list.Plugins, nil)

	for _, check := range []struct{ command, want string }{
		{"ip -n pod -4 route show default", "default via 10.244.3.1 dev eth0"},
		{"ip -n pod -6 route show default", "default via fd00:10:244:3::1 dev eth0"},
		{"ip -n pod -4 -o addr show eth0", "10.244.3.2/24"},
		{"ip -n pod -6 -o addr show eth0", "fd00:10:244:3::2/64"},
		{"ip -n pod link show eth0", "mtu 1430"},
		{"ip -4 -o addr show cni0", "10.244.3.1/24"},
	} {
		if out := run(t, strings.Fields(check.command)...); !strings.Contains(out, check.want) {
			t.Errorf("%s: %q is missing in\n%s", check.command, check.want, out)
		}
	}
	slices.Reverse(list.Plugins)
	call("DEL", list.Plugins, nil)
	if out := run(t, "ip", "-n", "pod", "-o", "link", "show"); strings.Contains(out, "eth0") {
		t.Errorf("eth0 is still there:\n%s", out)
	}
}
