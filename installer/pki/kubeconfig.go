package pki

import (
	clientcmd "k8s.io/client-go/tools/clientcmd/api/v1"

	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/internal/documents"
)

// kubeconfig is client-go's configuration file, with a field that kubeadm writes before v1.34.
type kubeconfig struct {
	clientcmd.Config `json:",inline"`
	Preferences      struct{} `json:"preferences"`
}

type (
	cluster = clientcmd.Cluster
	user    = clientcmd.AuthInfo
)

// newKubeconfig returns a kubeconfig with one cluster, one user and the context
// USER@CLUSTER, as in all of kubeadm's.
func newKubeconfig(server, clusterName string, caPEM []byte, userName string, u user) kubeconfig {
	name := userName + "@" + clusterName
	return kubeconfig{Config: clientcmd.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: name,
		Clusters:  []clientcmd.NamedCluster{{Name: clusterName, Cluster: cluster{CertificateAuthorityData: caPEM, Server: server}}},
		Contexts:  []clientcmd.NamedContext{{Name: name, Context: clientcmd.Context{Cluster: clusterName, AuthInfo: userName}}},
		AuthInfos: []clientcmd.NamedAuthInfo{{Name: userName, AuthInfo: u}},
	}}
}

// encode cannot fail: the type has only strings and bytes.
func (k kubeconfig) encode() []byte {
	data, err := yaml.Marshal(k)
	if err != nil {
		panic(err)
	}
	return data
}

// current returns the cluster and the user of the current context.
func (k kubeconfig) current() (cluster, user, error) {
	for _, ctx := range k.Contexts {
		if ctx.Name != k.CurrentContext {
			continue
		}
		for _, c := range k.Clusters {
			for _, u := range k.AuthInfos {
				if c.Name == ctx.Context.Cluster && u.Name == ctx.Context.AuthInfo {
					return c.Cluster, u.AuthInfo, nil
				}
			}
		}
	}
	return cluster{}, user{}, fmt.Errorf("its current context %q has no cluster and user", k.CurrentContext)
}

// identity is the user of a kubeconfig.
type identity struct {
	file string // below config.KubernetesDir
	// servers are the allowed server URLs; a new file gets the first.
	servers []string
	client  Certificate
}

// kubeconfigItems are kubeadm's sub-phases of `kubeconfig`, in its order.
var kubeconfigItems = []Certificate{
	{Name: "admin", Doc: "the administrators' kubeconfig"},
	{Name: "super-admin", Doc: "the super-admin's kubeconfig (system:masters)"},
	{Name: "kubelet", Doc: "the kubelet's kubeconfig and its first certificate"},
	{Name: "controller-manager", Doc: "the controller manager's kubeconfig"},
	{Name: "scheduler", Doc: "the scheduler's kubeconfig"},
}

// KubeconfigNames are the names that Kubeconfigs knows, in kubeadm's order.
func KubeconfigNames() []string { return names(kubeconfigItems) }

// kubeconfigsOf are the kubeconfigs that a control plane must have. A joining one
// has no super-admin.conf, and its kubelet requests its own certificate.
func kubeconfigsOf(cfg *config.Config) []string {
	if cfg.ControlPlane {
		return []string{"admin", "controller-manager", "scheduler"}
	}
	return KubeconfigNames()
}

// identities are the users of the kubeconfigs. The controller manager and the
// scheduler use the API server on their own host, people the control-plane
// endpoint. The kubelet used the endpoint too, until kubeadm switched it to the
// API server on its own host; an existing file may have either.
func identities(cfg *config.Config) map[string]identity {
	shared, local := cfg.ServerURL(), cfg.LocalURL()
	kubelets := []string{shared, local}
	if cfg.ControlPlaneKubeletLocalMode() {
		kubelets = []string{local, shared}
	}
	if cfg.Endpoint.Balancer {
		kubelets = append([]string{cfg.NodeURL()}, kubelets...)
	}
	of := func(file string, servers []string, name string, groups ...string) identity {
		return identity{file, servers, Certificate{CommonName: name, Organizations: groups, Usages: clientAuth}}
	}
	return map[string]identity{
		"admin":              of("admin.conf", []string{shared}, "kubernetes-admin", ClusterAdminsGroup),
		"super-admin":        of("super-admin.conf", []string{shared}, "kubernetes-super-admin", systemPrivilegedGroup),
		"kubelet":            of("kubelet.conf", kubelets, nodeUserPrefix+cfg.NodeRegistration.Name, nodesGroup),
		"controller-manager": of("controller-manager.conf", []string{local}, "system:kube-controller-manager"),
		"scheduler":          of("scheduler.conf", []string{local}, "system:kube-scheduler"),
	}
}

// Kubeconfigs returns the missing ones of the named kubeconfigs. The names are
// those of KubeconfigNames; without names, it means all except the kubelet's,
// which KubeletClient returns. The CA must be on the host, or in an Overlay. As in
// Ensure, existing files are kept or an error, and the error lists all problems.
func Kubeconfigs(cfg *config.Config, host fs.FS, now time.Time, names ...string) (Result, error) {
	if err := known(names, KubeconfigNames()); err != nil {
		return Result{}, err
	}
	if err := checkClock(now); err != nil {
		return Result{}, err
	}
	if len(names) == 0 {
		names = slices.DeleteFunc(kubeconfigsOf(cfg), func(name string) bool { return name == "kubelet" })
	}
	ca, err := clusterCA(cfg, host, now)
	if err != nil {
		return Result{}, err
	}
	all := identities(cfg)
	var result Result
	var problems problems
	for _, name := range names {
		var one Result
		if name == "kubelet" {
			one, err = KubeletClient(cfg, host, now)
		} else {
			one, err = ensureKubeconfig(cfg, host, now, all[name], ca)
		}
		problems.add(err)
		result.Files = append(result.Files, one.Files...)
		result.Kept = append(result.Kept, one.Kept...)
	}
	return problems.unless(result)
}

func ensureKubeconfig(cfg *config.Config, host fs.FS, now time.Time, id identity, ca authority) (Result, error) {
	file := path.Join(config.KubernetesDir, id.file)
	existing, err := read(host, file)
	if err != nil {
		return Result{}, err
	}
	if existing != nil {
		return Result{Kept: []string{file}}, checkKubeconfig(host, file, existing, id, ca, now)
	}
	if ca.external() {
		return Result{}, missing(file, ca)
	}
	certPEM, keyPEM, err := issuePEM(cfg, ca, id.client, now)
	if err != nil {
		return Result{}, fmt.Errorf("creating %s: %w", file, err)
	}
	data := newKubeconfig(id.servers[0], cfg.ClusterName, ca.trusted(),
		id.client.CommonName, user{ClientCertificateData: certPEM, ClientKeyData: keyPEM}).encode()
	return Result{Files: []File{{Path: file, Data: data, Mode: keyMode}}}, nil
}

// KubeletCertFile is the path of the kubelet's client certificate: a link to the
// newest of its dated files, which the kubelet updates on each rotation.
func KubeletCertFile(cfg *config.Config) string {
	return path.Join(cfg.NodeRegistration.KubeletCertDir(), "kubelet-client-current.pem")
}

// KubeletClient returns the kubelet's first client certificate, in the file and
// format in which the kubelet itself rotates it, and a kubelet.conf that refers to
// it. kubeadm embeds the certificate in kubelet.conf, moves it to that file in its
// phase kubelet-finalize and restarts the kubelet. The resulting files are the
// same, without the restart.
func KubeletClient(cfg *config.Config, host fs.FS, now time.Time) (Result, error) {
	ca, err := clusterCA(cfg, host, now)
	if err != nil {
		return Result{}, err
	}
	id := identities(cfg)["kubelet"]
	file := path.Join(config.KubernetesDir, id.file)
	existing, err := read(host, file)
	if err != nil {
		return Result{}, err
	}
	if existing != nil {
		if err := checkKubeconfig(host, file, existing, id, ca, now); err != nil {
			return Result{}, err
		}
		return Result{Kept: []string{file}}, nil
	}

	var result Result
	certFile := KubeletCertFile(cfg)
	current, err := read(host, certFile)
	if err != nil {
		return Result{}, err
	}
	if current != nil {
		if err := check(id.client, current, current, ca, now, certFile, certFile); err != nil {
			return Result{}, err
		}
		if err := checkName(id.client, current, certFile); err != nil {
			return Result{}, err
		}
		result.Kept = append(result.Kept, certFile)
	} else {
		if ca.external() {
			return Result{}, missing(file, ca)
		}
		certPEM, keyPEM, err := issuePEM(cfg, ca, id.client, now)
		if err != nil {
			return Result{}, fmt.Errorf("creating the kubelet's client certificate: %w", err)
		}
		result.Files = datedFiles(certFile, now, certPEM, keyPEM)
	}
	data := newKubeconfig(id.servers[0], cfg.ClusterName, ca.trusted(),
		id.client.CommonName, user{ClientCertificate: certFile, ClientKey: certFile}).encode()
	result.Files = append(result.Files, File{Path: file, Data: data, Mode: keyMode})
	return result, nil
}

// NodeName is the name in the kubelet's client certificate, to which kubelet.conf
// refers; "" if there is none.
func NodeName(host fs.FS) string {
	k, _ := readKubelet(host)
	if k.cert == nil && k.file == kubeletConf {
		k.cert, _ = read(host, KubeletCertFile(new(config.Config)))
	}
	certs, err := ParseCertificates(k.cert)
	if err != nil {
		return ""
	}
	if name, ok := strings.CutPrefix(certs[0].Subject.CommonName, nodeUserPrefix); ok {
		return name
	}
	return ""
}

// NodeUser is the name of the user that a node's kubelet is.
func NodeUser(node string) string { return nodeUserPrefix + node }

// KubeletClientFile returns the file with the kubelet's certificate and key to which kubelet.conf refers; "" if it contains
// them itself, or if it cannot be read.
func KubeletClientFile(host fs.FS) string {
	data, err := read(host, kubeletConf)
	if err != nil || data == nil {
		return ""
	}
	_, u, err := parseKubeconfig(kubeletConf, data)
	if err != nil || u.ClientCertificate != u.ClientKey {
		return ""
	}
	return u.ClientCertificate
}

// BootstrapKubeconfig is bootstrap-kubelet.conf, with which a joining kubelet
// requests its certificate. server is a URL.
func BootstrapKubeconfig(server string, caPEM []byte, token string) []byte {
	return newKubeconfig(server, "kubernetes", caPEM, "tls-bootstrap-token-user", user{Token: token}).encode()
}

// ClusterInfoKubeconfig is the public kubeconfig in the ConfigMap cluster-info:
// a cluster without a name, and no user.
func ClusterInfoKubeconfig(server string, caPEM []byte) []byte {
	return kubeconfig{Config: clientcmd.Config{
		APIVersion: "v1", Kind: "Config", Clusters: []clientcmd.NamedCluster{{Cluster: cluster{CertificateAuthorityData: caPEM, Server: server}}},
	}}.encode()
}

func clusterCA(cfg *config.Config, host fs.FS, now time.Time) (authority, error) {
	c := row("ca")
	ca, err := loadAuthority(cfg, host, c, now)
	if err == nil && ca.cert == nil {
		err = noAuthority(c.certPath(cfg), cfg)
	}
	return ca, err
}

// issuePEM generates a key, signs its certificate and encodes both.
func issuePEM(cfg *config.Config, ca authority, c Certificate, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := newKey(algorithm(cfg, ca))
	if err != nil {
		return nil, nil, err
	}
	cert, err := ca.issue(cfg, c, key, now)
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodePEM(certType, cert.Raw), keyPEM, err
}

// parseKubeconfig returns the cluster and the user of a file's current context.
func parseKubeconfig(file string, data []byte) (cluster, user, error) {
	var k kubeconfig
	if err := documents.Unmarshal(data, &k); err != nil {
		return cluster{}, user{}, unusable(file, err)
	}
	cl, u, err := k.current()
	if err != nil {
		return cluster{}, user{}, unusable(file, err)
	}
	return cl, u, nil
}

// checkKubeconfig fails if an existing kubeconfig does not trust this CA, does not
// point at an allowed server, or has no usable credentials.
func checkKubeconfig(host fs.FS, file string, data []byte, id identity, ca authority, now time.Time) error {
	cl, u, err := parseKubeconfig(file, data)
	if err != nil {
		return err
	}
	if cl.CertificateAuthorityData == nil && cl.CertificateAuthority != "" {
		if cl.CertificateAuthorityData, err = read(host, cl.CertificateAuthority); err != nil {
			return unusable(file, err)
		}
	}
	trusted, err := ParseCertificates(cl.CertificateAuthorityData)
	if err != nil {
		return unusable(file, fmt.Errorf("reading its CA: %w", err))
	}
	if !ca.knows(trusted[0]) {
		return unusable(file, fmt.Errorf("it does not trust the CA %s", ca.path))
	}
	if !slices.Contains(id.servers, cl.Server) {
		return unusable(file, fmt.Errorf("it points at %s, not at %s", cl.Server, strings.Join(slices.Compact(id.servers), " or ")))
	}
	if u.Token != "" {
		return nil
	}
	if u.ClientCertificate != "" {
		if u.ClientCertificateData, err = read(host, u.ClientCertificate); err != nil {
			return unusable(file, err)
		}
	}
	if u.ClientKey != "" {
		if u.ClientKeyData, err = read(host, u.ClientKey); err != nil {
			return unusable(file, err)
		}
	}
	if u.ClientCertificateData == nil || u.ClientKeyData == nil {
		return unusable(file, errors.New("its user has no client certificate and key"))
	}
	if err := check(id.client, u.ClientCertificateData, u.ClientKeyData, ca, now, file, file); err != nil {
		return err
	}
	if !strings.HasPrefix(id.client.CommonName, nodeUserPrefix) {
		return nil // people and controllers may have other names
	}
	return checkName(id.client, u.ClientCertificateData, file)
}

// checkName refuses a client certificate with another name.
func checkName(c Certificate, certPEM []byte, file string) error {
	certs, err := ParseCertificates(certPEM)
	if err != nil {
		return unusable(file, err)
	}
	if name := certs[0].Subject.CommonName; name != c.CommonName {
		return unusable(file, fmt.Errorf("it is for %q, not for %q", name, c.CommonName))
	}
	return nil
}
