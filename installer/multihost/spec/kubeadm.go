package spec

import (
	"bytes"
	"iter"
	"slices"
	"strings"

	"airlift/installer/config"
	"airlift/internal/documents"
	"airlift/internal/documents/problems"
	"airlift/internal/documents/strict"
)

// kubeadm has kubeadm's documents, and the places of what cluster.yaml has, too.
type kubeadm struct {
	text  [][]byte
	kinds map[string]string // the place of each document by its kind
	// ClusterConfiguration's clusterName, controlPlaneEndpoint and the file that the API servers encrypt with.
	name, endpoint, provider written
	parts                    []config.Part
	refused                  map[string]bool // places with secrets, which must not be in another error, and with errors of documents.Read
}

// written is a text and where it is. file is "" for cluster.yaml.
type written struct {
	text, file string
	line       int
}

func kubeadmFile(r *reader, text string, _ strict.Place) (set, why, hint string) {
	path, why, hint := r.path(text)
	if why != "" {
		return "", why, hint
	}
	data, err := strict.Load(path)
	if err != nil {
		return "", "cannot be read: " + err.Error(), "write the path of a file with kubeadm's documents" + r.relative
	}
	r.addToDigest(text, data)
	list, errs := documents.Read(data)
	if len(list)+len(errs) == 0 {
		return "", "is empty", "write kubeadm's documents to it, or remove it here"
	}
	r.addKubeadm(path, list, errs)
	return path, "", ""
}

// addKubeadm checks and adds documents of a file.
func (r *reader) addKubeadm(file string, list []documents.Document, errs []documents.Error) {
	list = slices.DeleteFunc(list, documents.Document.Empty)
	k := &r.kubeadm
	k.parts = append(k.parts, config.Part{File: file, Documents: list})
	if file == r.List.File {
		file = "" // its errors come first
	}
	r.AddErrors(file, errs)
	for _, e := range errs {
		r.refuse(file, e.Line)
	}
	for _, d := range list {
		r.addDocument(file, d)
	}
}

// refuse lets no other error be at a line.
func (r *reader) refuse(file string, line int) {
	if r.kubeadm.refused == nil {
		r.kubeadm.refused = map[string]bool{}
	}
	r.kubeadm.refused[r.AtIn(file, line)] = true
}

// found adds problems that others found in the documents.
func (r *reader) found(list []problems.Problem) {
	for _, p := range list {
		if p.File == r.List.File {
			p.File = ""
		}
		if p.Line == 0 { // a default, or a value that replaces a flag
			field, _, _ := strings.Cut(p.Text, " ")
			p.Line = r.Lines.Nearest("%s", field)
		}
		if !r.kubeadm.refused[r.AtIn(p.File, p.Line)] {
			r.Problems = append(r.Problems, p)
		}
	}
}

func (r *reader) addDocument(file string, d documents.Document) {
	k := &r.kubeadm
	kind := valueOf(d.Node, "kind")
	if first, twice := k.kinds[kind.text]; twice {
		r.AddIn(file, d.Line, "remove one of them", "%s occurs twice, first at %s", kind.text, first)
	}
	if k.kinds == nil {
		k.kinds = map[string]string{}
	}
	k.kinds[kind.text] = r.AtIn(file, d.Line)
	for _, f := range refusedFields {
		if f.kind != kind.text {
			continue
		}
		for key, value := range fieldsAt(d.Node, f.path) {
			r.AddIn(file, key.Line, f.hint, "%s.%s cannot be in the file of a cluster", f.kind, strings.Join(f.path, "."))
			r.refuseAll(file, key, value)
		}
	}
	r.checkArguments(file, d, kind.text)
	if kind.text == "ClusterConfiguration" {
		k.name, k.endpoint = valueOf(d.Node, "clusterName"), valueOf(d.Node, "controlPlaneEndpoint")
		k.name.file, k.endpoint.file = file, file
		if key, value := argumentOf(d.Node, providerFlag, "apiServer", "extraArgs"); key != nil && value != nil {
			k.provider = written{text: value.Value, file: file, line: key.Line}
		}
	}
	k.text = append(k.text, d.Text)
}

func valueOf(n *documents.Node, name string) written {
	key, value := documents.Field(n, name)
	if key == nil {
		return written{}
	}
	return written{text: value.Value, line: key.Line}
}

// documentsText returns all documents as one stream.
func (k *kubeadm) documentsText() []byte { return bytes.Join(k.text, []byte("---\n")) }

const (
	hintSecret  = "remove the line: cluster.yaml has no secrets, and apply creates tokens and the certificate key itself"
	hintName    = "remove the line: the name of the node is hosts[].name"
	hintAddress = "remove the line, and write nodeIP at the host"
	hintDryRun  = "remove the line; to see what apply would do: ./install cluster plan"
	hintEtcd    = "remove it: each host has its own"
)

type refusedField struct {
	kind, hint string
	path       []string
}

// refusedFields are fields of kubeadm's documents that are secrets, or that differ from host to host.
var refusedFields = []refusedField{
	{"InitConfiguration", hintSecret, []string{"certificateKey"}},
	{"InitConfiguration", hintSecret, []string{"bootstrapTokens", "token"}},
	{"InitConfiguration", hintName, []string{"nodeRegistration", "name"}},
	{"InitConfiguration", hintAddress, []string{"localAPIEndpoint", "advertiseAddress"}},
	{"JoinConfiguration", "remove it: apply finds the cluster itself, and creates the token", []string{"discovery"}},
	{"JoinConfiguration", hintSecret, []string{"controlPlane", "certificateKey"}},
	{"JoinConfiguration", hintName, []string{"nodeRegistration", "name"}},
	{"JoinConfiguration", hintAddress, []string{"controlPlane", "localAPIEndpoint", "advertiseAddress"}},
	{"InitConfiguration", hintDryRun, []string{"dryRun"}},
	{"JoinConfiguration", hintDryRun, []string{"dryRun"}},
	{"UpgradeConfiguration", hintDryRun, []string{"apply", "dryRun"}},
	{"UpgradeConfiguration", hintDryRun, []string{"node", "dryRun"}},
	{"ResetConfiguration", "remove the document: cluster reset does not read it; on a host, use ./install reset --config FILE", []string{"kind"}},
}

// hostArguments are arguments of components that differ from host to host: with the same name or address, all hosts would be
// one node.
var hostArguments = []struct {
	kind, name, hint string
	path             []string
}{
	{"InitConfiguration", "hostname-override", hintName, []string{"nodeRegistration", "kubeletExtraArgs"}},
	{"InitConfiguration", "node-ip", hintAddress, []string{"nodeRegistration", "kubeletExtraArgs"}},
	{"JoinConfiguration", "hostname-override", hintName, []string{"nodeRegistration", "kubeletExtraArgs"}},
	{"JoinConfiguration", "node-ip", hintAddress, []string{"nodeRegistration", "kubeletExtraArgs"}},
	{"ClusterConfiguration", "advertise-address", hintAddress, []string{"apiServer", "extraArgs"}},
	{"ClusterConfiguration", "name", hintEtcd, []string{"etcd", "local", "extraArgs"}},
	{"ClusterConfiguration", "initial-cluster", hintEtcd, []string{"etcd", "local", "extraArgs"}},
	{"ClusterConfiguration", "initial-advertise-peer-urls", hintEtcd, []string{"etcd", "local", "extraArgs"}},
	{"ClusterConfiguration", "advertise-client-urls", hintEtcd, []string{"etcd", "local", "extraArgs"}},
}

func (r *reader) checkArguments(file string, d documents.Document, kind string) {
	for _, a := range hostArguments {
		if a.kind != kind {
			continue
		}
		if key, _ := argumentOf(d.Node, a.name, a.path...); key != nil {
			r.AddIn(file, key.Line, a.hint, "%s.%s: %s cannot be in the file of a cluster", kind, strings.Join(a.path, "."), a.name)
		}
	}
}

// fieldsAt returns the names and values of the fields at a path, in all items of the lists on it.
func fieldsAt(n *documents.Node, path []string) iter.Seq2[*documents.Node, *documents.Node] {
	return func(yield func(key, value *documents.Node) bool) {
		items := []*documents.Node{n}
		for i := 0; documents.Item(n, i) != nil; i++ {
			items = append(items, documents.Item(n, i))
		}
		for _, item := range items {
			key, value := documents.Field(item, path[0])
			if key == nil {
				continue
			}
			if len(path) == 1 {
				if !yield(key, value) {
					return
				}
				continue
			}
			for key, value := range fieldsAt(value, path[1:]) {
				if !yield(key, value) {
					return
				}
			}
		}
	}
}

// refuseAll lets no other error be at the lines of nodes and of all that is in them.
func (r *reader) refuseAll(file string, nodes ...*documents.Node) {
	for _, n := range nodes {
		r.refuse(file, n.Line)
		r.refuseAll(file, n.Content...)
	}
}
