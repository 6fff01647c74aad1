//go:build e2e

package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	kubeproxyv1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"airlift/scripts/lab"
	"airlift/scripts/oracle"
)

// This test compares all API objects of a cluster of real kubeadm and of a cluster of
// Airlift with the same configuration, field by field.

// cluster is every object of a cluster: "Kind namespace/name" => its fields,
// by path.
type cluster map[string]map[string]string

// A liveDifference is an intended difference between the two clusters.
type liveDifference struct {
	What, Why string
	// Where is a regular expression for "Kind namespace/name path".
	Where         string
	oracle.Minors // whose kubeadm has the difference
}

// liveDifferences is the complete list. Any other difference fails the test, and so does an entry
// without a difference.
var liveDifferences = []liveDifference{
	{
		What:  "the first token has a description",
		Why:   "who lists tokens sees where it comes from",
		Where: `Secret kube-system/bootstrap-token-\*( #2)? data\.description`,
	}, {
		What:   "the container runtime's socket is named by its own path",
		Why:    "/var/run, which kubeadm's default goes through, is a link to /run",
		Where:  `Node HOST metadata\.annotations\.kubeadm\.alpha\.kubernetes\.io/cri-socket`,
		Minors: oracle.Minors{Until: 33},
	}, {
		What:   "keys are ECDSA P-256",
		Why:    "they are made faster; the configuration names the type since v1.31",
		Where:  `ConfigMap kube-system/kubeadm-config data\.ClusterConfiguration\.encryptionAlgorithm`,
		Minors: oracle.Minors{Since: 31},
	}, {
		What:  "the first node's kubelet asks for no certificate",
		Why:   "it has the rotatable one from the start; kubeadm's starts with another and trades it",
		Where: `CertificateSigningRequest csr-\*`,
	}, {
		What:  "static pods are asked every second whether they have started",
		Why:   "kubeadm's startup probes ask first after ten to twenty seconds, and the pods are not Ready until then",
		Where: `Pod kube-system/(etcd|kube-apiserver|kube-controller-manager|kube-scheduler)-HOST spec\.containers\[0\]\.startupProbe\.(failureThreshold|initialDelaySeconds|periodSeconds)`,
	}, {
		What:  "flannel gives CNI settings that need no plugin of its own",
		Why:   "its plugin is an image of its own, and bridge can be told the same directly; one hook instead of two init containers",
		Where: `(ConfigMap kube-flannel/kube-flannel-cfg data\.cni-conf\.json|(DaemonSet|Pod) kube-flannel/kube-flannel-ds(-\*)? spec\.(template\.spec\.)?(initContainers|volumes|containers\[0\]\.(lifecycle|volumeMounts)))\b.*`,
	}, {
		What:  "flannel talks to the API server itself and is told the node's address",
		Why:   "it does not wait for kube-proxy, and without a default route it would find no interface; by hand it is told the interface's name",
		Where: `(DaemonSet|Pod) kube-flannel/kube-flannel-ds(-\*)? spec\.(template\.spec\.)?containers\[0\]\.(args|env)\b.*`,
	}, {
		What:  "the names that hash flannel's pod",
		Why:   "its pod differs, as said above",
		Where: `(ControllerRevision kube-flannel/kube-flannel-ds-[0-9a-z]+|Pod kube-flannel/kube-flannel-ds-\* metadata\.labels\.controller-revision-hash)`,
	},
}

// unlisted are resources that are not compared: events, and other views of the same objects.
var unlisted = []string{"events", "events.events.k8s.io", "componentstatuses", "endpoints"}

// dump reads every object of the cluster's API, as the administrator on one of its control
// planes. It replaces what differs in any two clusters (host names, addresses, times,
// random names, keys) with a star.
func dump(t *testing.T, h *lab.Host) cluster {
	t.Helper()
	started := time.Now()
	resources := slices.DeleteFunc(strings.Fields(kubectlOn(t, h, "api-resources", "--verbs", "list", "-o", "name")),
		func(name string) bool { return slices.Contains(unlisted, name) })
	if len(resources) < 30 { // v1.29 has about fifty resources
		t.Fatalf("%s lists only the resources %v", h.Name, resources)
	}
	text := kubectlOn(t, h, "get", strings.Join(resources, ","), "-A", "-o", "json")
	text = strings.NewReplacer(h.Name, "HOST", h.Addr.String(), "ADDRESS").Replace(text)
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	alike := map[string][]map[string]string{} // by title: random names look the same
	for _, object := range list.Items {
		name := title(object)
		alike[name] = append(alike[name], fields(object))
	}
	c := cluster{}
	for name, objects := range alike {
		slices.SortFunc(objects, func(a, b map[string]string) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		c[name] = objects[0]
		for n, object := range objects[1:] {
			c[fmt.Sprintf("%s #%d", name, n+2)] = object
		}
	}
	t.Logf("%s: %d objects of %d kinds in %s", h.Name, len(c), len(resources), time.Since(started).Round(10*time.Millisecond))
	return c
}

// random matches the parts of names and values that differ between any two clusters.
var random = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z ]+-----[^-]+-----END [A-Z ]+-----`), "PEM"},
	{regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z\b`), "TIME"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-*"},
	{regexp.MustCompile(`bootstrap-token-[a-z0-9]{6}`), "bootstrap-token-*"},
	{regexp.MustCompile(`bootstrap:[a-z0-9]{6}`), "bootstrap:*"},
	{regexp.MustCompile(`jws-kubeconfig-[a-z0-9]{6}`), "jws-kubeconfig-*"},
	{regexp.MustCompile(`apiserver-[a-z0-9]{26}`), "apiserver-*"}, // a lease, named by the hash of the host name
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`(kubernetes\.io:kube-apiserver-serving:)[0-9a-f]{24}`), "$1*"}, // the hash of the CA
	{regexp.MustCompile(`"VtepMAC":"[0-9a-f:]+"`), `"VtepMAC":"*"`},
}

func plain(s string) string {
	for _, r := range random {
		s = r.pattern.ReplaceAllString(s, r.instead)
	}
	return s
}

// title returns the name that an object has in both clusters.
func title(object map[string]any) string {
	meta := object["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	if prefix, ok := meta["generateName"].(string); ok {
		name = prefix + "*"
	}
	if namespace, ok := meta["namespace"].(string); ok {
		name = namespace + "/" + name
	}
	return plain(fmt.Sprintf("%s %s", object["kind"], name))
}

// notCompared are fields of the API server and its controllers that differ in any two clusters.
var notCompared = []*regexp.Regexp{
	regexp.MustCompile(`^metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields|name|selfLink)\b`),
	regexp.MustCompile(`^metadata\.annotations\.kubectl\.kubernetes\.io/last-applied-configuration\b`), // set by kubectl
	regexp.MustCompile(`^metadata\.ownerReferences\[\d+\]\.uid$`),
	regexp.MustCompile(`^metadata\.annotations\.kubernetes\.io/config\.(hash|mirror|seen)$`),          // hashes and times of a static pod
	regexp.MustCompile(`^metadata\.annotations\.endpoints\.kubernetes\.io/last-change-trigger-time$`), // only if the last update followed a change of a pod or the Service
	regexp.MustCompile(`^status\b`),
	regexp.MustCompile(`^data\.kubeconfig\.preferences$`), // empty in cluster-info, and left out by kubeadm since v1.35
}

// fields flattens an object. It decodes Secrets, and parses text that is YAML or JSON.
func fields(object map[string]any) map[string]string {
	flat := map[string]string{}
	created, _ := time.Parse(time.RFC3339, fmt.Sprint(object["metadata"].(map[string]any)["creationTimestamp"]))
	if object["kind"] == "Secret" {
		data, _ := object["data"].(map[string]any)
		for k, v := range data {
			plainText, err := base64.StdEncoding.DecodeString(fmt.Sprint(v))
			if err != nil {
				plainText = fmt.Append(nil, v)
			}
			data[k] = secret(k, string(plainText), created)
		}
	}
	if object["kind"] == "Lease" { // skip its holder and times
		delete(object, "spec")
	}
	if object["kind"] == "EndpointSlice" { // in the order in which pods came up
		delete(object, "endpoints")
	}
	if object["kind"] == "ConfigMap" {
		data, _ := object["data"].(map[string]any)
		meaning[kubeletv1.KubeletConfiguration](data, "kubelet")
		meaning[kubeproxyv1.KubeProxyConfiguration](data, "config.conf")
	}
	flatten(flat, "", object)
	maps.DeleteFunc(flat, func(path, _ string) bool {
		return slices.ContainsFunc(notCompared, func(r *regexp.Regexp) bool { return r.MatchString(path) })
	})
	return flat
}

// secret returns the part of a Secret's value that must be the same in two clusters. It
// replaces a time by the time since the Secret was created, in minutes.
func secret(key, value string, created time.Time) string {
	switch {
	case key == "token-id" || key == "token-secret":
		return fmt.Sprintf("%d characters", len(value))
	case key == "expiration":
		expires, err := time.Parse(time.RFC3339, value)
		if err != nil {
			return value
		}
		return "in " + expires.Sub(created).Round(time.Minute).String()
	case strings.HasSuffix(key, ".crt") || strings.HasSuffix(key, ".key") || strings.HasSuffix(key, ".pub"):
		return "encrypted"
	}
	return value
}

// meaning replaces a component's configuration by its decoded form, in which explicit
// zero values are the same as missing fields.
func meaning[T any](data map[string]any, key string) {
	text, ok := data[key].(string)
	if !ok {
		return
	}
	var typed T
	if yaml.UnmarshalStrict([]byte(text), &typed) != nil {
		return // another document than its name suggests
	}
	if out, err := yaml.Marshal(typed); err == nil {
		data[key] = string(out)
	}
}

// unordered are lists whose order does not matter, with the field that identifies their items.
var unordered = map[string]string{"volumes": "name", "volumeMounts": "mountPath"}

func flatten(flat map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		if len(v) == 0 {
			flat[path] = "{}"
		}
		for k, item := range v {
			flatten(flat, strings.TrimPrefix(path+"."+plain(k), "."), item)
		}
	case []any:
		if len(v) == 0 {
			flat[path] = "[]"
		}
		if name := unordered[path[strings.LastIndex(path, ".")+1:]]; name != "" {
			slices.SortFunc(v, func(a, b any) int {
				return strings.Compare(fmt.Sprint(a.(map[string]any)[name]), fmt.Sprint(b.(map[string]any)[name]))
			})
		}
		for i, item := range v {
			flatten(flat, fmt.Sprintf("%s[%d]", path, i), item)
		}
	case string:
		var inner map[string]any
		if strings.Contains(v, "\n") && yaml.Unmarshal([]byte(v), &inner) == nil && len(inner) > 0 {
			flatten(flat, path, inner)
			return
		}
		switch {
		case strings.Contains(path, "jws-kubeconfig-*"):
			v = "a signature"
		case strings.HasSuffix(path, ".certificate-authority-data"):
			v = "a CA"
		}
		flat[path] = plain(v)
	default:
		var b bytes.Buffer
		_ = json.NewEncoder(&b).Encode(v)
		flat[path] = strings.TrimSpace(b.String())
	}
}

// compare fails for every difference that is not listed, and logs the listed ones.
func compare(t *testing.T, version string, wanted []liveDifference, kubeadm, airlift cluster) {
	t.Helper()
	differences := slices.DeleteFunc(slices.Clone(wanted), func(d liveDifference) bool { return !d.Have(version) })
	seen := make([]int, len(differences))
	differs := func(name, path, theirs, ours string) {
		where := strings.TrimSpace(name + " " + path)
		for i, d := range differences {
			if regexp.MustCompile("^(" + d.Where + ")$").MatchString(where) {
				seen[i]++
				return
			}
		}
		t.Errorf("%s\n\tkubeadm: %s\n\tairlift: %s", where, theirs, ours)
	}
	compared, count := 0, 0
	for _, name := range sortedUnion(kubeadm, airlift) {
		theirs, ours := kubeadm[name], airlift[name]
		switch {
		case ours == nil:
			differs(name, "", "has it", "none")
			continue
		case theirs == nil:
			differs(name, "", "none", "has it")
			continue
		}
		compared++
		for _, path := range sortedUnion(theirs, ours) {
			count++
			if theirs[path] != ours[path] {
				differs(name, path, theirs[path], ours[path])
			}
		}
	}
	var table strings.Builder
	for i, d := range differences {
		fmt.Fprintf(&table, "\n  - %s: %s (%d fields)", d.What, d.Why, seen[i])
		if seen[i] == 0 {
			t.Errorf("not a difference any more: %s", d.What)
		}
	}
	t.Logf("%d objects with %d fields compared; wanted differences:%s", compared, count, &table)
}

func sortedUnion[V any](a, b map[string]V) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
