//go:build e2e

package e2e

import (
	"testing"

	"airlift/scripts/lab"
)

// TestExternalCA creates a cluster whose CA keys are never on the host: openssl signs the
// requests of generate-csr.
func TestExternalCA(t *testing.T) {
	s := up(t, lab.Options{Name: "e2e-externalca", Hosts: 1})
	h := s.Hosts[0]
	run(t, h, "sh", "-c", `set -e
		mkdir -p /root/ca /etc/kubernetes/pki/etcd
		for ca in ca:kubernetes front-proxy-ca:front-proxy-ca etcd/ca:etcd-ca; do
			file=${ca%:*} name=${ca#*:}; mkdir -p /root/ca/$(dirname $file)
			openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj /CN=$name -addext keyUsage=critical,keyCertSign,digitalSignature \
				-keyout /root/ca/$file.key -out /etc/kubernetes/pki/$file.crt
		done 2>/dev/null
		openssl genrsa -out /etc/kubernetes/pki/sa.key 2048 2>/dev/null
		openssl rsa -in /etc/kubernetes/pki/sa.key -pubout -out /etc/kubernetes/pki/sa.pub 2>/dev/null`)

	bare := untouched(t, h)
	contains(t, install(t, h, 1, "init", "phase", "certs", "all"),
		"apiserver.crt", "apiserver-kubelet-client.crt", "front-proxy-client.crt", "etcd/server.crt", "etcd/peer.crt", "hint: ")
	same(t, bare, untouched(t, h))

	install(t, h, 0, "certs", "generate-csr", "--kubeconfig-dir", "/etc/kubernetes", "--cert-dir", "/etc/kubernetes/pki")
	run(t, h, "sh", "-c", `set -e
		cd /etc/kubernetes
		for csr in $(find . -name '*.csr'); do
			name=${csr#./}; name=${name%.csr}
			ca=ca usage=clientAuth
			case $name in
			pki/etcd/server|pki/etcd/peer) ca=etcd/ca usage=serverAuth,clientAuth;;
			pki/etcd/*|pki/apiserver-etcd-client) ca=etcd/ca;;
			pki/front-proxy-client) ca=front-proxy-ca;;
			pki/apiserver) usage=serverAuth;;
			esac
			echo "extendedKeyUsage=$usage" > /root/ext
			echo "keyUsage=critical,digitalSignature,keyEncipherment" >> /root/ext
			openssl req -noout -text -in $csr | grep -A1 'Subject Alternative Name' | grep -v Subject | sed 's/IP Address/IP/g; s/^ */subjectAltName=/' >> /root/ext || true
			openssl x509 -req -in $csr -CA pki/$ca.crt -CAkey /root/ca/$ca.key -CAcreateserial -CAserial /root/serial -days 365 -extfile /root/ext -out $name.crt
			case $name in *.conf)
				sed -i "s|^\( *\)client-key-data:|\1client-certificate-data: $(base64 -w0 $name.crt)\n\1client-key-data:|" $name
				rm $name.crt;;
			esac
			rm $csr
		done 2>/dev/null`)
	install(t, h, 0, "init")
	systemIsUp(t, s, 1)
	run(t, h, "sh", "-c", "! find /etc/kubernetes -name '*ca.key' | grep .")
	contains(t, run(t, h, "cat", "/etc/kubernetes/manifests/kube-controller-manager.yaml"), "--cluster-signing-key-file=\n")
	contains(t, install(t, h, 0, "certs", "check-expiration"), "apiserver")
	contains(t, install(t, h, 1, "certs", "renew", "apiserver"), "hint: ")
}
