package installer

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"

	"airlift/installer/cluster"
	"airlift/installer/pki"
)

// showJoinCommand prints how to use the cluster, and how to add workers and
// control planes.
func (i *Init) showJoinCommand(ctx context.Context) error {
	ca, err := os.ReadFile(i.host.Path(path.Join(i.config.CertificatesDir, "ca.crt")))
	if err != nil {
		return err
	}
	hashes, err := pki.CAHashes(ca)
	if err != nil {
		return err
	}
	if i.token == "" {
		if i.token, err = i.client.FindJoinToken(ctx, joinTokenLife); err != nil {
			return err
		}
	}
	s := initSummary{
		version:   i.config.KubernetesVersion,
		unchanged: i.changes == 0,
		network:   i.config.CNI,
		shared:    i.config.ControlPlaneEndpoint != "",
	}
	token, key := i.token, i.certificateKey
	if i.options.SkipTokenPrint {
		token = "<TOKEN>"
	}
	if i.options.SkipCertificateKeyPrint && key != "" {
		key = "<CERTIFICATE KEY>"
	}
	if i.token != "" {
		s.join = cluster.JoinCommand(strings.TrimPrefix(i.config.ServerURL(), "https://"), token, hashes...)
	}
	if i.config.UploadCerts {
		s.key = key
	}
	i.console.Summary(s.String())
	return nil
}

// An initSummary is the text that init prints at its end.
type initSummary struct {
	version, join, key, network string
	unchanged, shared           bool
}

func (s initSummary) String() string {
	var b strings.Builder
	if s.unchanged {
		fmt.Fprintf(&b, "Kubernetes %s is already running here. Nothing was changed.\n", s.version)
	} else {
		fmt.Fprintf(&b, "Kubernetes %s is running on this host.\n", s.version)
	}
	b.WriteString("\nUse it as root:\n\n    export KUBECONFIG=" + adminConf + "\n    kubectl get nodes\n")
	if s.network == "none" {
		b.WriteString("\nInstall a pod network next; the node is NotReady until then.\n")
	}
	if s.join == "" {
		b.WriteString("\nTo add nodes, make a token: ./install token create --print-join-command\n")
		return b.String()
	}
	b.WriteString("\nAdd a worker: carry this file to it and run there, as root:\n\n    " + s.join + "\n")
	switch {
	case s.key != "":
		b.WriteString("\nAdd a control plane in the same way:\n\n    " + s.join + " --control-plane --certificate-key " + s.key +
			"\n\nThe certificates that it needs are stored in the cluster for two hours,\nencrypted with this key. Keep it as secret as the certificates.\n" +
			"Later, upload them again: ./install init phase upload-certs --upload-certs\n")
	case s.shared:
		b.WriteString("\nAdd a control plane in the same way. First copy the certificates from /etc/kubernetes/pki to it\n" +
			"(ca, sa, front-proxy-ca and etcd/ca, .crt or .pub and .key):\n\n    " + s.join + " --control-plane\n")
	}
	return b.String()
}
