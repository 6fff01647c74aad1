package kubeletcheck

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"airlift/images/release"
	"airlift/installer/config"
	"airlift/scripts/fixtures/rig"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func in(version, body string, flags ...config.Arg) Input {
	return Input{Kubernetes: version, Config: []byte(head + body), Flags: flags, CPUs: 4, MemoryBytes: 8 << 30, PIDs: 32768}
}

// one checks that there is exactly one problem, and its content.
func one(t *testing.T, input Input, name string, warning bool, words ...string) {
	t.Helper()
	found := Check(input)
	if len(found) != 1 || found[0].Name != name || found[0].Warning != warning {
		t.Fatalf("want one %s (warning %v), got %+v", name, warning, found)
	}
	for _, w := range words {
		if !strings.Contains(found[0].Message+"\n"+found[0].Fix, w) {
			t.Errorf("%q is not in %+v", w, found[0])
		}
	}
}

func none(t *testing.T, input Input) {
	t.Helper()
	if found := Check(input); len(found) > 0 {
		t.Errorf("%+v", found)
	}
}

// Check compares reservations with the machine. The real kubelet does that only
// after it has changed the machine's cgroups, so no test runs it.
func TestMachine(t *testing.T) {
	one(t, in("v1.29.15", "systemReserved: {cpu: \"3\"}\nkubeReserved: {cpu: 1500m}"), Reserved, false, "systemReserved 3 and kubeReserved 1500m", "has: 4")
	one(t, in("v1.29.15", "systemReserved: {cpu: \"3\"}\nkubeReserved: {cpu: \"1\"}"), Reserved, true, "all that this machine has")
	none(t, in("v1.29.15", "systemReserved: {cpu: \"3\"}\nkubeReserved: {cpu: 999m}"))
	// 100Mi is the kubelet's default eviction threshold.
	one(t, in("v1.29.15", "systemReserved: {memory: 8100Mi}"), Reserved, false, "evictionHard 100Mi", "8Gi")
	none(t, in("v1.29.15", "systemReserved: {memory: 8000Mi}"))
	one(t, in("v1.29.15", "systemReserved: {memory: 5Gi}\nevictionHard: {memory.available: 50%}"), Reserved, false, "evictionHard 4Gi")
	none(t, in("v1.29.15", "systemReserved: {memory: 8100Mi}", config.Arg{Name: "eviction-hard", Value: "nodefs.available<5%"}))
	one(t, in("v1.29.15", "kubeReserved: {pid: \"40000\"}"), Reserved, false, "pid", "32768")
	// The list of CPUs replaces the reserved CPU counts.
	none(t, in("v1.29.15", "reservedSystemCPUs: 0-1\nsystemReserved: {cpu: \"9\"}\nkubeReserved: {cpu: \"9\"}"))
	one(t, in("v1.29.15", "reservedSystemCPUs: 2-5"), Reserved, false, "CPU 4")
	unknown := in("v1.29.15", "systemReserved: {cpu: \"900\", memory: 900Gi}")
	unknown.CPUs, unknown.MemoryBytes, unknown.PIDs = 0, 0, 0
	none(t, unknown)
}

// The rules depend on the minor version.
func TestVersions(t *testing.T) {
	// Feature gates: not yet known, removed, locked, and dependent on another
	// gate.
	one(t, in("v1.29.15", "featureGates: {ImageVolume: true}"), FeatureGates, false, "it was added in v1.31")
	one(t, in("v1.37.1", "featureGates: {CSIMigrationPortworx: true}"), FeatureGates, false, "was the last version with it")
	one(t, in("v1.29.15", "featureGates: {nodeswap: true}"), FeatureGates, false, "did you mean NodeSwap?")
	none(t, in("v1.29.15", "featureGates: {GracefulNodeShutdown: false}"))
	one(t, in("v1.36.3", "featureGates: {ClusterTrustBundle: false, ClusterTrustBundleProjection: true}"), FeatureGates, false, "ClusterTrustBundleProjection is on and needs ClusterTrustBundle")
	none(t, in("v1.36.3", "featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true}"))
	// Flags.
	infra := config.Arg{Name: "pod-infra-container-image", Value: "registry.k8s.io/pause:3.9"}
	if found := errorsOf(Check(in("v1.29.15", "", infra))); len(found) > 0 {
		t.Errorf("%+v", found)
	}
	one(t, in("v1.37.1", "", infra), Flags, false, "was the last version with it")
	// Fields and their values.
	one(t, in("v1.29.15", "podLogsDir: /var/log/x"), Configuration, true, "it was added in v1.30")
	none(t, in("v1.30.14", "podLogsDir: /var/log/x"))
	one(t, in("v1.30.14", "podLogsDir: logs"), Configuration, false, "absolute path")
	one(t, in("v1.34.9", "memorySwap: {swapBehavior: UnlimitedSwap}"), Configuration, false, "NoSwap")
	none(t, in("v1.34.9", "memorySwap: {swapBehavior: NoSwap}"))
	one(t, in("v1.31.14", "enforceNodeAllocatable: [system-reserved-compressible]\nsystemReservedCgroup: /s"), Configuration, false, "system-reserved-compressible")
	none(t, in("v1.32.13", "enforceNodeAllocatable: [system-reserved-compressible]\nsystemReservedCgroup: /s"))
	one(t, in("v1.33.13", "runOnce: true"), Configuration, false, "runOnce")
	// A policy with which the kubelet does not use imported images.
	one(t, in("v1.35.6", "imagePullCredentialsVerificationPolicy: AlwaysVerify"), Configuration, true, "pulls each imported image again", "NeverVerifyPreloadedImages")
	one(t, in("v1.37.2", "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [a.example/b]"), Configuration, true, "preloadedImagesVerificationAllowlist does not name it")
	none(t, in("v1.37.2", "imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages"))
	one(t, in("v1.34.9", "imagePullCredentialsVerificationPolicy: AlwaysVerify"), Configuration, false, "needs the feature gate")
	// For an unknown version, the rules of the nearest version apply.
	none(t, in("v1.99.0", "podLogsDir: /var/log/x"))
	none(t, in("v1.20.0", ""))
	for minor := release.OldestMinor; minor <= release.NewestMinor; minor++ {
		version := "v1." + strconv.Itoa(minor) + ".0"
		none(t, in(version, "maxPods: 110\nfailSwapOn: false\ncgroupDriver: systemd\nclusterDNS: [10.96.0.10]\nauthentication: {x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}\n"+
			"logging: {flushFrequency: 0, options: {json: {infoBufferSize: \"0\"}}, verbosity: 0}\nmemorySwap: {}\nshutdownGracePeriod: 0s", config.Arg{Name: "node-ip", Value: "10.0.0.1,fd00::1"}))
	}
}

// A field can mean something else in a new version.
func TestChanged(t *testing.T) {
	upgrade := func(from, to, body string, flags ...config.Arg) Input {
		input := in(to, body, flags...)
		input.From = from
		return input
	}
	one(t, upgrade("v1.36.3", "v1.37.2", "eventRecordQPS: 0"), Configuration, true, "eventRecordQPS is 0: since v1.37 that means no limit", "50")
	one(t, upgrade("v1.34.9", "v1.37.2", "", config.Arg{Name: "event-qps", Value: "0"}), Configuration, true, "--event-qps (eventRecordQPS) is 0", "KUBELET_EXTRA_ARGS")
	none(t, upgrade("v1.36.3", "v1.37.2", "eventRecordQPS: 50"))
	none(t, upgrade("v1.36.3", "v1.37.2", ""))
	none(t, upgrade("v1.37.1", "v1.37.2", "eventRecordQPS: 0"))
	none(t, upgrade("v1.35.6", "v1.36.3", "eventRecordQPS: 0"))
	none(t, in("v1.37.2", "eventRecordQPS: 0"))
}

// The kubelet does not start if its range of IDs for user namespaces is not made of blocks, one for
// each pod.
func TestUserNamespaces(t *testing.T) {
	host := func(subuid, subgid string) fstest.MapFS {
		return fstest.MapFS{
			"etc/passwd": {Data: []byte("root:x:0:0::/:/bin/sh\nkubelet:x:990:990::/:/bin/false\n")}, "usr/bin/getsubids": {},
			"etc/subuid": {Data: []byte("user:100000000:65536\n" + subuid)}, "etc/subgid": {Data: []byte("user:100000000:65536\n" + subgid)},
		}
	}
	without := func(name string, files fstest.MapFS) fstest.MapFS {
		delete(files, name)
		return files
	}
	with := func(name, text string, files fstest.MapFS) fstest.MapFS {
		files[name] = &fstest.MapFile{Data: []byte(text)}
		return files
	}
	const good = "kubelet:65536:7208960\n"
	for name, c := range map[string]struct {
		version, body string
		files         fstest.MapFS
		want          string // none if empty
	}{
		"one range":               {"v1.37.2", "", host(good, good), ""},
		"by the user's ID":        {"v1.37.2", "", host("990:65536:7208960\n", good), ""},
		"no range":                {"v1.37.2", "", host("", ""), "/etc/subuid (none) and /etc/subgid (none)"},
		"no group range":          {"v1.37.2", "", host(good, ""), "/etc/subgid (none)"},
		"another group range":     {"v1.37.2", "", host(good, "kubelet:131072:7208960\n"), "(131072:7208960)"},
		"two ranges":              {"v1.37.2", "", host(good+"kubelet:10000000:65536\n", good+"kubelet:10000000:65536\n"), "not one and the same"},
		"a range between blocks":  {"v1.37.2", "", host("kubelet:100000:7208960\n", "kubelet:100000:7208960\n"), "7208960 IDs from 100000 on, is not made of blocks of 65536"},
		"a range from 0":          {"v1.37.2", "", host("kubelet:0:7208960\n", "kubelet:0:7208960\n"), "from 0 on"},
		"a short range":           {"v1.37.2", "", host("kubelet:65536:65536\n", "kubelet:65536:65536\n"), "enough for 1 pods of 65536, and maxPods is 110"},
		"more pods":               {"v1.37.2", "maxPods: 111", host(good, good), "maxPods is 111"},
		"fewer pods":              {"v1.37.2", "maxPods: 1", host("kubelet:65536:65536\n", "kubelet:65536:65536\n"), ""},
		"larger blocks":           {"v1.37.2", "userNamespaces: {idsPerPod: 131072}", host(good, good), "kubelet:131072:14417920"},
		"no user":                 {"v1.37.2", "", without("etc/passwd", host("", "")), ""},
		"no command":              {"v1.37.2", "", without("usr/bin/getsubids", host("", "")), ""},
		"another service":         {"v1.37.2", "", with("etc/nsswitch.conf", "subid: sss\n", host("", "")), ""},
		"files, as a service":     {"v1.37.2", "", with("etc/nsswitch.conf", "subid:\tfiles \n", host("", "")), "(none)"},
		"gate off":                {"v1.35.6", "featureGates: {UserNamespacesSupport: false, ProcMountType: false}", host("", ""), ""},
		"off by default":          {"v1.32.13", "", host("", ""), ""},
		"gate on":                 {"v1.32.13", "featureGates: {UserNamespacesSupport: true}", host("", ""), "(none)"},
		"no code":                 {"v1.29.15", "featureGates: {UserNamespacesSupport: true}", host("", ""), ""},
		"an odd number":           {"v1.37.2", "userNamespaces: {idsPerPod: 70000}", fstest.MapFS{}, "userNamespaces.idsPerPod is 70000: it must be a multiple of 65536"},
		"a small number":          {"v1.37.2", "userNamespaces: {idsPerPod: 0}", fstest.MapFS{}, "it must be a multiple of 65536"},
		"the host, three each":    {"v1.37.2", "userNamespaces: {idsPerPod: 196608}", fstest.MapFS{}, "all IDs of this host, 4294770688 IDs from 196608 on, is not made of blocks of 196608"},
		"the host, large numbers": {"v1.37.2", "userNamespaces: {idsPerPod: 67108864}", fstest.MapFS{}, "enough for 63 pods"},
	} {
		t.Run(name, func(t *testing.T) {
			input := in(c.version, c.body)
			input.Root = c.files
			if c.want == "" {
				none(t, input)
				return
			}
			one(t, input, Configuration, false, c.want)
		})
	}
}

func TestUserNamespacesOfAnotherUser(t *testing.T) {
	const own = "kubelet:65536:7208960\n"
	host := func(subuid, subgid string) Input {
		input := in("v1.37.2", "")
		input.Root = fstest.MapFS{"etc/passwd": {Data: []byte("kubelet:x:990:990::/:/bin/false\n")}, "usr/bin/getsubids": {}, "etc/subuid": {Data: []byte(subuid)}, "etc/subgid": {Data: []byte(subgid)}}
		return input
	}
	one(t, host(own+"user:100000:65536\n", own), Configuration, true, "(65536:7208960) overlaps the range of another user (100000:65536)")
	one(t, host(own, "user:0:65537\n"+own), Configuration, true, "(0:65537)")
	none(t, host(own+"before:0:65536\nafter:7274496:65536\n", own))
	without := host("user:100000:65536\n", "user:100000:65536\n")
	delete(without.Root.(fstest.MapFS), "etc/passwd")
	none(t, without)
}

// Check reports all problems at once, and always in the same way.
func TestAllAtOnce(t *testing.T) {
	input := in("v1.29.15", "maxPods: many\nport: 70000\nhairpinMode: x\ntlsMinVersion: x\nfeatureGates: {A: true}\nsystemReserved: {gpu: \"1\"}\nauthentication: {x509: {clientCAFile: /none.crt}}",
		config.Arg{Name: "node-labels", Value: "kubernetes.io/a=b,c=d e"}, config.Arg{Name: "no-such"}, config.Arg{Name: "sync-frequency", Value: "1"})
	input.Root = fstest.MapFS{}
	found := Check(input)
	seen := make(map[string]int)
	for _, p := range found {
		if p.Warning || p.Fix == "" || p.Message == "" {
			t.Errorf("%+v", p)
		}
		seen[p.Name]++
	}
	want := map[string]int{Configuration: 3, Flags: 2, NodeLabels: 2, FeatureGates: 1, TLS: 1, ClientCA: 1, Reserved: 1}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("%v, want %v: %+v", seen, want, found)
	}
	for name := range seen {
		if !slices.Contains(Names(), name) {
			t.Errorf("%s is not in Names", name)
		}
	}
	for range 20 {
		if again := Check(input); !reflect.DeepEqual(again, found) {
			t.Fatalf("%+v\n%+v", found, again)
		}
	}
	for _, text := range []string{"", "a", "[1]", "{", "\x00", "maxPods: {", "null"} {
		if found := Check(Input{Kubernetes: "v1.29.15", Config: []byte(text)}); text != "" && len(errorsOf(found)) == 0 {
			t.Errorf("%q: no problem found", text)
		}
	}
}

// Check looks for files at the kubelet's paths, and accepts files that a later
// step creates.
func TestFiles(t *testing.T) {
	rig.Tool(t, "openssl")
	w := &realKubelet{t: t, dir: t.TempDir()}
	w.files()
	read := func(name string) *fstest.MapFile {
		data, err := os.ReadFile(filepath.Join(w.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return &fstest.MapFile{Data: data}
	}
	root := fstest.MapFS{"etc/a.crt": read("a.crt"), "etc/a.key": read("a.key"), "etc/b.key": read("b.key"), "var/lib/kubelet/x/a.crt": read("a.crt")}
	with := func(i Input) Input { i.Root = root; return i }
	ca := "authentication: {x509: {clientCAFile: %s}}"
	one(t, with(in("v1.29.15", strings.Replace(ca, "%s", "/etc/kubernetes/pki/ca.crt", 1))), ClientCA, false, "/etc/kubernetes/pki/ca.crt: file does not exist")
	one(t, with(in("v1.29.15", strings.Replace(ca, "%s", "/etc/a.key", 1))), ClientCA, false, "a private key, not a certificate")
	one(t, with(in("v1.29.15", "tlsCertFile: /etc/a.crt\ntlsPrivateKeyFile: /etc/a.crt")), TLS, false, "/etc/a.crt: it is a certificate, not a private key")
	later := with(in("v1.29.15", strings.Replace(ca, "%s", "/etc/kubernetes/pki/ca.crt", 1)))
	later.WillExist = []string{"/etc/kubernetes/pki/ca.crt"}
	none(t, later)
	none(t, with(in("v1.29.15", strings.Replace(ca, "%s", "x/a.crt", 1)))) // relative to the configuration file
	none(t, with(in("v1.29.15", "", config.Arg{Name: "client-ca-file", Value: "etc/a.crt"})))
	none(t, with(in("v1.29.15", "tlsCertFile: /etc/a.crt\ntlsPrivateKeyFile: /etc/a.key")))
	one(t, with(in("v1.29.15", "tlsCertFile: /etc/a.crt\ntlsPrivateKeyFile: /etc/b.key")), TLS, false, "not a pair")
	one(t, with(in("v1.29.15", "tlsCertFile: /etc/a.crt")), TLS, false, "without tlsPrivateKeyFile")
	one(t, with(in("v1.29.15", "tlsPrivateKeyFile: /etc/a.key")), TLS, false, "without tlsCertFile")
	one(t, with(in("v1.29.15", "tlsCertFile: /etc/none\ntlsPrivateKeyFile: /etc/a.key")), TLS, false, "/etc/none: file does not exist")
}

// The kubelet uses Go's server, which does not start with suites that HTTP/2
// forbids. It must start with all others.
func TestSuites(t *testing.T) {
	rig.Tool(t, "openssl")
	w := &realKubelet{t: t, dir: t.TempDir()}
	w.files()
	pair, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "a.crt"), filepath.Join(w.dir, "a.key"))
	if err != nil {
		t.Fatal(err)
	}
	serves := func(suite uint16) bool {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // so a server that starts also ends at once
		s := &http.Server{TLSConfig: &tls.Config{CipherSuites: []uint16{suite}, Certificates: []tls.Certificate{pair}}}
		return !strings.Contains(s.ServeTLS(l, "", "").Error(), "HTTP/2")
	}
	const good, bad = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
	if !serves(good) || serves(bad) {
		t.Fatal("net/http has other rules")
	}
	none(t, in("v1.29.15", "tlsCipherSuites: ["+tls.CipherSuiteName(good)+"]"))
	one(t, in("v1.29.15", "tlsCipherSuites: ["+tls.CipherSuiteName(bad)+"]"), TLS, false, "HTTP/2")
}

// TestConfigDir: the files of --config-dir are laid on the configuration as the kubelet does.
func TestConfigDir(t *testing.T) {
	for title, c := range map[string]struct {
		files fstest.MapFS
		want  string // in a problem; "" if there is none
	}{
		"the last one counts":    {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte(head + "maxPods: -1\n")}, "etc/k.d/20.conf": {Data: []byte(head + "maxPods: 5\n")}}, ""},
		"also a bad one":         {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte(head + "maxPods: 5\n")}, "etc/k.d/20.conf": {Data: []byte(head + "maxPods: -1\n")}}, "maxPods is -1"},
		"in directories":         {fstest.MapFS{"etc/k.d/a/10.conf": {Data: []byte(head + "maxPods: -1\n")}}, "maxPods is -1"},
		"only .conf":             {fstest.MapFS{"etc/k.d/10.yaml": {Data: []byte("maxPods: -1\n")}}, ""},
		"null removes a field":   {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte(head + "podsPerCore: null\n")}}, ""},
		"maps are merged":        {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte(head + "featureGates: {NoSuch: true}\n")}}, "NoSuch"},
		"no kind":                {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte("maxPods: 5\n")}}, "kind: KubeletConfiguration"},
		"no YAML":                {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte("a: [")}}, "/etc/k.d/10.conf"},
		"no directory":           {fstest.MapFS{}, "etc/k.d"},
		"an unknown field warns": {fstest.MapFS{"etc/k.d/10.conf": {Data: []byte(head + "maxPodz: 5\n")}}, "maxPodz"},
	} {
		t.Run(title, func(t *testing.T) {
			body := "podsPerCore: 3\n"
			if title == "null removes a field" {
				body = "podsPerCore: -3\n"
			}
			input := in("v1.37.1", body, config.Arg{Name: "config-dir", Value: "/etc/k.d"})
			input.Root = c.files
			list := Check(input)
			if c.want == "" && len(list) > 0 || c.want != "" && !slices.ContainsFunc(list, func(p Problem) bool { return strings.Contains(p.Message, c.want) }) {
				t.Errorf("%+v", list)
			}
		})
	}
}

// TestConfigDirOfV1_29: the kubelet of v1.29 needs a variable for --config-dir.
func TestConfigDirOfV1_29(t *testing.T) {
	for text, refused := range map[string]bool{"": true, "KUBELET_CONFIG_DROPIN_DIR_ALPHA=1\n": false, "# KUBELET_CONFIG_DROPIN_DIR_ALPHA=1\n": true} {
		input := in("v1.29.15", "", config.Arg{Name: "config-dir", Value: "/etc/k.d"})
		input.Root = fstest.MapFS{"etc/default/kubelet": {Data: []byte("KUBELET_EXTRA_ARGS=--config-dir=/etc/k.d\n" + text)}, "etc/k.d/README": {}}
		if list := Check(input); len(list) > 0 != refused {
			t.Errorf("%q: %+v", text, list)
		}
	}
}
