package config

import (
	"fmt"
	"slices"
	"strings"

	"airlift/internal/fault"
)

// allowedWithConfig are the flags that may be given together with --config: the flags that kubeadm
// v1.29 and v1.37 allow (ValidateMixedArguments in validation.go), and Airlift's own flags, for
// which a file has no field.
var allowedWithConfig = []string{
	"config", "ignore-preflight-errors", "dry-run", "kubeconfig", "node-name", "kubeconfig-dir", "upload-certs",
	"print-manifest", "allow-missing-template-keys", "output", "experimental-output", "show-managed-fields", "print-join-command",
	"rootfs", "v", "log-file", "yes",
	"cni", "encrypt-secrets", "node-ip", "kube-proxy-server", "control-plane-vip", "control-plane-balancer", "embedded-registry", "render-dir", "timeline", "progress", "help",
	"profile", "registry-mirror", "registry-ca", "registry-auth", "drain", "drain-timeout", "context-lines", "diff",
	"progress", "require-key", "require-version", "signature", "without-ledger", "remove-node", "force-conflicts",
}

// CheckMixed refuses flags that may not be given together with --config. changed
// are the names of all given flags; without "config" among them, all are allowed.
// Allowed flags take precedence over the file.
func CheckMixed(changed []string) error {
	if !slices.Contains(changed, "config") {
		return nil
	}
	var refused []string
	for _, name := range changed {
		if !slices.Contains(allowedWithConfig, name) && !strings.HasPrefix(name, "skip-") {
			refused = append(refused, "--"+name)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	hint := "set it in the file instead"
	for _, flag := range refused {
		if field := fieldOfFlag[strings.TrimPrefix(flag, "--")]; field != "" {
			hint += fmt.Sprintf("\n  %s is %s", flag, field)
		}
	}
	return fault.New(fault.Usage, "%s cannot be given together with --config: the file is the whole configuration", strings.Join(refused, ", ")).Hint(hint)
}

// fieldOfFlag maps flags to the fields of a configuration file.
var fieldOfFlag = map[string]string{
	"apiserver-advertise-address":                 "localAPIEndpoint.advertiseAddress in InitConfiguration, controlPlane.localAPIEndpoint.advertiseAddress in JoinConfiguration",
	"apiserver-bind-port":                         "localAPIEndpoint.bindPort in InitConfiguration, controlPlane.localAPIEndpoint.bindPort in JoinConfiguration",
	"apiserver-cert-extra-sans":                   "apiServer.certSANs in ClusterConfiguration",
	"apiserver-extra-args":                        "apiServer.extraArgs in ClusterConfiguration",
	"cert-dir":                                    "certificatesDir in ClusterConfiguration or ResetConfiguration",
	"certificate-key":                             "certificateKey in InitConfiguration, controlPlane.certificateKey in JoinConfiguration",
	"cleanup-tmp-dir":                             "cleanupTmpDir in ResetConfiguration",
	"control-plane":                               "controlPlane: {} in JoinConfiguration",
	"control-plane-endpoint":                      "controlPlaneEndpoint in ClusterConfiguration",
	"controller-manager-extra-args":               "controllerManager.extraArgs in ClusterConfiguration",
	"cri-socket":                                  "nodeRegistration.criSocket, or criSocket in ResetConfiguration",
	"discovery-file":                              "discovery.file.kubeConfigPath in JoinConfiguration",
	"discovery-timeout":                           "timeouts.discovery in JoinConfiguration",
	"discovery-token":                             "discovery.bootstrapToken.token in JoinConfiguration",
	"discovery-token-ca-cert-hash":                "discovery.bootstrapToken.caCertHashes in JoinConfiguration",
	"discovery-token-unsafe-skip-ca-verification": "discovery.bootstrapToken.unsafeSkipCAVerification in JoinConfiguration",
	"feature-gates":                               "featureGates in ClusterConfiguration",
	"force":                                       "force: true in ResetConfiguration",
	"image-repository":                            "imageRepository in ClusterConfiguration",
	"kubernetes-version":                          "kubernetesVersion in ClusterConfiguration",
	"patches":                                     "patches.directory in InitConfiguration or JoinConfiguration",
	"pod-network-cidr":                            "networking.podSubnet in ClusterConfiguration",
	"scheduler-extra-args":                        "scheduler.extraArgs in ClusterConfiguration",
	"service-cidr":                                "networking.serviceSubnet in ClusterConfiguration",
	"service-dns-domain":                          "networking.dnsDomain in ClusterConfiguration",
	"tls-bootstrap-token":                         "discovery.tlsBootstrapToken in JoinConfiguration",
	"token":                                       "bootstrapTokens in InitConfiguration, discovery.tlsBootstrapToken in JoinConfiguration",
	"token-ttl":                                   "bootstrapTokens[].ttl in InitConfiguration",
}
