package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// Merge adds the cluster of a kubeconfig that CheckOne accepts to the files that kubectl reads: those in $KUBECONFIG, or ~/.kube/config.
// The cluster and the context get the name, the user NAME-admin. Server replaces the server unless it is "". Merge updates entries that it
// added before, and refuses to replace others. The context becomes the current one only if there is none.
func Merge(kubeconfig []byte, name, server string) (file string, changed bool, err error) {
	own, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return "", false, fmt.Errorf("reading kubeconfig: %w", err)
	}
	now := own.Contexts[own.CurrentContext]
	cluster, user := own.Clusters[now.Cluster], own.AuthInfos[now.AuthInfo]
	paths := clientcmd.NewDefaultPathOptions()
	file = paths.GetDefaultFilename()
	if i := slices.IndexFunc(paths.GetLoadingPrecedence(), func(path string) bool { return strings.HasPrefix(path, config.KubernetesDir+"/") }); i >= 0 {
		return "", false, fault.New(fault.Usage, "KUBECONFIG names %s, which belongs to this node", paths.GetLoadingPrecedence()[i]).Hint("merge into ~/.kube/config: unset KUBECONFIG")
	}
	all, err := paths.GetStartingConfig()
	if err != nil {
		return "", false, fault.New(fault.Usage, "reading the kubeconfig of this machine: %w", err).Hint("see it: kubectl config view; or set KUBECONFIG to another file")
	}
	before, admin := all.DeepCopy(), name+"-admin"
	if err := collision(all, name, admin, cluster.CertificateAuthorityData); err != nil {
		return "", false, err
	}
	c := entry(all.Clusters, name, clientcmdapi.NewCluster)
	c.Server, c.CertificateAuthorityData = cmp.Or(server, cluster.Server), cluster.CertificateAuthorityData
	u := entry(all.AuthInfos, admin, clientcmdapi.NewAuthInfo)
	u.ClientCertificateData, u.ClientKeyData, u.Token = user.ClientCertificateData, user.ClientKeyData, user.Token
	context := entry(all.Contexts, name, clientcmdapi.NewContext)
	context.Cluster, context.AuthInfo = name, admin
	all.CurrentContext = cmp.Or(all.CurrentContext, name)
	if reflect.DeepEqual(before, all) {
		return file, false, nil
	}
	if err := clientcmd.ModifyConfig(paths, *all, true); err != nil {
		return "", false, fault.New(fault.Failure, "writing the kubeconfig of this machine: %w", err).Hint("if no other kubectl changes it, remove its lock: " + fault.Word(file+".lock"))
	}
	return file, true, nil
}

// entry returns an entry, which it adds if there is none.
func entry[T any](entries map[string]*T, name string, create func() *T) *T {
	if entries[name] == nil {
		entries[name] = create()
	}
	return entries[name]
}

// collision refuses to replace entries of another cluster.
func collision(all *clientcmdapi.Config, name, user string, ca []byte) error {
	c, context := all.Clusters[name], all.Contexts[name]
	what := ""
	switch {
	case c != nil && !bytes.Equal(c.CertificateAuthorityData, ca):
		what = fmt.Sprintf("a cluster %q with another CA", name)
	case context != nil && (context.Cluster != name || context.AuthInfo != user):
		what = fmt.Sprintf("a context %q for another cluster or user", name)
	case c == nil && all.AuthInfos[user] != nil:
		what = fmt.Sprintf("a user %q of another cluster", user)
	default:
		return nil
	}
	w, u := fault.Word(name), fault.Word(user)
	return fault.New(fault.Usage, "the kubeconfig of this machine already has %s", what).
		Hint("merge under another name: ./install cluster kubeconfig --merge --context NAME; or, if that cluster is gone: kubectl config delete-context " + w +
			"; kubectl config delete-cluster " + w + "; kubectl config delete-user " + u)
}
