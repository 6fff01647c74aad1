package config_test

import (
	"strings"
	"testing"

	"airlift/installer/config"
)

// TestMixedFlagsAreThoseOfKubeadm compares with kubeadm, for each of kubeadm's
// flags.
func TestMixedFlagsAreThoseOfKubeadm(t *testing.T) {
	path := writeFile(t, inVersion(head+"---\n"+joinHead+byToken, "v1beta3", "v1.29.15"))
	kubeadm, _ := judge(t, "v1beta3")
	for command, flags := range map[string]map[string]string{
		// The directory does not exist, so kubeadm fails early, whatever the
		// flags.
		"init": {
			"apiserver-advertise-address": "192.0.2.1", "apiserver-bind-port": "6443", "apiserver-cert-extra-sans": "a", "cert-dir": "/tmp/none",
			"certificate-key": "", "control-plane-endpoint": "a", "cri-socket": "unix:///run/none.sock", "dry-run": "true", "feature-gates": "",
			"ignore-preflight-errors": "all", "image-repository": "a", "kubernetes-version": "v1.29.15", "node-name": "a", "patches": "/tmp/none",
			"pod-network-cidr": "10.0.0.0/16", "service-cidr": "10.1.0.0/16", "service-dns-domain": "a", "skip-certificate-key-print": "true",
			"skip-phases": "preflight", "skip-token-print": "true", "token": "abcdef.0123456789abcdef", "token-ttl": "1h", "upload-certs": "true",
		},
		"join": {
			"apiserver-advertise-address": "192.0.2.1", "apiserver-bind-port": "6443", "certificate-key": "", "control-plane": "true",
			"cri-socket": "unix:///run/none.sock", "discovery-file": "/tmp/none", "discovery-token": "abcdef.0123456789abcdef",
			"discovery-token-ca-cert-hash": "a", "discovery-token-unsafe-skip-ca-verification": "true", "dry-run": "true",
			"ignore-preflight-errors": "all", "node-name": "a", "patches": "/tmp/none", "skip-phases": "preflight",
			"tls-bootstrap-token": "abcdef.0123456789abcdef", "token": "abcdef.0123456789abcdef",
		},
	} {
		for flag, value := range flags {
			t.Run(command+"/"+flag, func(t *testing.T) {
				t.Parallel()
				args := []string{command, "--config", path, "--" + flag + "=" + value}
				// kubeadm must not change anything.
				if flag != "dry-run" {
					args = append(args, "--dry-run")
				}
				if flag != "ignore-preflight-errors" {
					args = append(args, "--ignore-preflight-errors=none,all") // kubeadm refuses this after it has checked the flags
				} else {
					args[len(args)-2] = "--ignore-preflight-errors=none,all"
				}
				out, err := run(kubeadm, args...)
				if err == nil {
					t.Fatalf("kubeadm ran: %s", out)
				}
				theirs := strings.Contains(string(out), "can not mix")
				ours := config.CheckMixed([]string{"config", flag})
				if theirs != (ours != nil) {
					t.Errorf("refused by kubeadm %t, %s; here: %v", theirs, out, ours)
				}
				if err := config.CheckMixed([]string{flag}); err != nil {
					t.Errorf("without --config: %v", err)
				}
			})
		}
	}
	err := config.CheckMixed([]string{"config", "pod-network-cidr", "token"})
	if err == nil || !strings.Contains(err.Error(), "--pod-network-cidr, --token cannot be given together with --config") {
		t.Error(err)
	}
}

// Flags for which a file has no field are accepted together with --config.
func TestOwnFlagsAreMixed(t *testing.T) {
	err := config.CheckMixed([]string{"config", "cni", "node-ip", "kube-proxy-server", "rootfs", "v", "require-key", "require-version", "signature", "without-ledger", "force-conflicts"})
	if err != nil {
		t.Error(err)
	}
}

func TestCheckVersion(t *testing.T) {
	for asked, ok := range map[string]bool{
		"": true, "v1.29.15": true, "1.29.15": true, "stable-1.29": true, "stable-1": true, "stable": true, "latest-1.29": true, "release/stable-1.29": true,
		"v1.29.14": false, "1.29.0": false, "v1.30.15": false, "stable-1.30": false, "ci/latest": false, "v1.29": false, "newest": false, "v1.29.15-rc.1": false,
	} {
		if err := config.CheckVersion(asked, "v1.29.15"); (err == nil) != ok {
			t.Errorf("%q: %v", asked, err)
		}
	}
}
