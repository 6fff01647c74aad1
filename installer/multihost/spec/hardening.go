package spec

import (
	"airlift/internal/documents"
	"airlift/internal/documents/strict"
)

// Hardened is the profile of a cluster that is configured as the CIS benchmark asks.
const Hardened = "hardened"

// NoProfile takes the profile away from a running cluster.
const NoProfile = "none"

func profile(_ *reader, text string, _ strict.Place) (set, why, hint string) {
	if text != Hardened && text != NoProfile {
		return "", "is not a profile", "write " + Hardened + ", or " + NoProfile + " to take it away; or remove the line: apply then leaves the cluster as it is"
	}
	return text, "", ""
}

// providerFlag names the site's own configuration of the encryption in etcd.
const providerFlag = "encryption-provider-config"

// checkEncryption refuses keys of the site together with keys that Airlift makes.
func (r *reader) checkEncryption(doc *document) {
	own := r.kubeadm.provider
	if doc.EncryptSecrets != nil && own.text != "" && own.text != OwnKeys {
		r.AddIn(own.file, own.line, "remove the argument, or encryptSecrets", "apiServer.extraArgs: %s cannot be together with encryptSecrets", providerFlag)
	}
}

// OwnKeys is the file with the keys that Airlift makes.
const OwnKeys = "/etc/kubernetes/encryption/secrets.yaml"

// argumentOf returns the name and the value of an argument of a component, nil for none.
func argumentOf(d *documents.Node, name string, path ...string) (key, value *documents.Node) {
	args := documents.Value(d, path...)
	key, value = documents.Field(args, name) // a mapping up to v1beta3
	for i := 0; documents.Item(args, i) != nil; i++ {
		if n := documents.Value(documents.Item(args, i), "name"); n != nil && n.Value == name {
			key, value = n, documents.Value(documents.Item(args, i), "value")
		}
	}
	return key, value
}
