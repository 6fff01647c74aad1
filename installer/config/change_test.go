package config_test

import (
	"fmt"
	"math/rand"
	"regexp"
	"strings"
	"testing"

	yamlnode "go.yaml.in/yaml/v3"
)

// changes is the number of files that TestOneChangeInAGoodFile tries. A run
// with 1200 files took half a minute and showed no differences except those in
// stricter.
const changes = 80

// stricter matches the refusals of Airlift that kubeadm does not share. Each
// such setting would fail later, or not do what the user meant.
var stricter = regexp.MustCompile(strings.Join([]string{
	`is not sha256: and 64 hexadecimal digits`,                                    // discovery would fail
	`extraVolumes\[\d+\]: `,                                                       // the kubelet would refuse the pod
	`extraEnvs\[\d+\]: name`,                                                      //
	`taints\[\d+\]: `,                                                             // the node could not register
	`criSocket "[^"]*" must be unix:// and`,                                       // kubeadm adds unix:// to any value
	`and must be greater than 0s`,                                                 // the wait would end at once
	`mergeMethod|write the name without dashes`,                                   // the component would not start
	`the token ID "[^"]*" is used twice`,                                          // one token would overwrite the other
	`advertiseAddress \S+ cannot be reached`,                                      //
	`ignorePreflightErrors: all cannot be combined`,                               // kubeadm reports it only at run time
	`, this host's address, is in the cluster's range|overlap$`,                   // routes could not tell them apart
	`the API server needs an address of the family|Services could not reach pods`, // the cluster would not start
	`has host bits set`,                                                           // the effective range differs from the written one
	`must be a path or begin with|has no host`,                                    //
	`endpoints is empty: give at least one`,                                       // as in v1.37; v1.29 accepts it
	`httpEndpoints`,                                                               //
	`caCertHashes|certSANs`,                                                       //
}, "|"))

// TestOneChangeInAGoodFile changes good files in one place and runs kubeadm on
// each. Airlift must refuse what kubeadm refuses, and accept what kubeadm
// accepts, except for the refusals in stricter.
func TestOneChangeInAGoodFile(t *testing.T) {
	random := rand.New(rand.NewSource(20261121))
	for n := range changes {
		var what, text, api string
		for text == "" {
			f := goodFiles[random.Intn(len(goodFiles))]
			api = f.versions[random.Intn(len(f.versions))]
			_, kubernetes := judge(t, api)
			var change string
			change, text = changed(inVersion(f.text, api, kubernetes), random)
			what = f.name + "/" + api + change
		}
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			kubeadm, _ := judge(t, api)
			path := writeFile(t, text)
			ours := refusal(path)
			out, err := run(kubeadm, "config", "validate", "--allow-experimental-api="+yes(api == "v1"), "--config", path)
			switch {
			case ours == nil && err != nil:
				t.Errorf("%s: accepted, and kubeadm says %s", what, out)
			case ours != nil && err == nil && !stricter.MatchString(ours.Error()):
				t.Errorf("%s: kubeadm accepts it, and here: %v", what, ours)
			}
		})
	}
}

// changed deletes, renames, repeats or replaces one value of a file. The result
// is empty if that changed nothing.
func changed(text string, random *rand.Rand) (what, result string) {
	if strings.HasPrefix(text, "{") {
		return "", ""
	}
	docs := strings.Split(strings.ReplaceAll(text, "\r", ""), "\n---\n")
	k := random.Intn(len(docs))
	var root yamlnode.Node
	if yamlnode.Unmarshal([]byte(docs[k]), &root) != nil || len(root.Content) == 0 {
		return "", ""
	}
	type spot struct {
		node, in *yamlnode.Node
		at       int
		path     string
	}
	var spots []spot
	var walk func(n *yamlnode.Node, path string)
	walk = func(n *yamlnode.Node, path string) {
		for i, inner := range n.Content {
			p := fmt.Sprintf("%s[%d]", path, i)
			if n.Kind == yamlnode.MappingNode {
				if i%2 == 0 {
					continue
				}
				p = path + "." + n.Content[i-1].Value
			}
			if p != ".kind" && p != ".apiVersion" && p != ".kubernetesVersion" {
				spots = append(spots, spot{inner, n, i, p})
				walk(inner, p)
			}
		}
	}
	walk(root.Content[0], "")
	if len(spots) == 0 {
		return "", ""
	}
	s := spots[random.Intn(len(spots))]
	inMapping := s.in.Kind == yamlnode.MappingNode
	switch how := random.Intn(6); {
	case how == 0 && inMapping:
		what = " without " + s.path
		s.in.Content = append(s.in.Content[:s.at-1:s.at-1], s.in.Content[s.at+1:]...)
	case how == 1 && inMapping:
		what = " renamed " + s.path
		s.in.Content[s.at-1].Value += "s"
	case how == 2 && inMapping:
		what = " twice " + s.path
		s.in.Content = append(s.in.Content, s.in.Content[s.at-1], s.node)
	default:
		values := []string{"7", "'7'", "true", "[]", "{}", "[x]", "{x: y}", "''", "null", "-1", "/abs", "a.b", "1h", "[{name: a, value: b}]", "{a: b}"}
		value := values[random.Intn(len(values))]
		var node yamlnode.Node
		if yamlnode.Unmarshal([]byte(value), &node) != nil {
			return "", ""
		}
		what = " " + s.path + " = " + value
		*s.node = *node.Content[0]
	}
	data, err := yamlnode.Marshal(&root)
	if err != nil {
		return "", ""
	}
	docs[k] = string(data)
	return what, strings.Join(docs, "\n---\n")
}
