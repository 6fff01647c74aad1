package reconfiguration

import (
	"crypto/x509"
	"fmt"
	"slices"

	"k8s.io/client-go/util/keyutil"

	"airlift/installer/config"
)

// tokenKeys are the keys of the tokens of service accounts.
type tokenKeys struct {
	signs   []tokenKey // of the API server and of the controller manager
	accepts []tokenKey
}

// A tokenKey is a key, and where it is.
type tokenKey struct{ component, flag, file, public string }

// CheckKeys returns why another configuration of a running cluster cannot have its keys of tokens, and what becomes of tokens. given
// are files that the change brings. readFormer and readNext read a file of the host as it is, and as it will be. An error is one of
// a file that cannot be read.
func CheckKeys(was, is *config.Cluster, given []File, readFormer, readNext func(file string) ([]byte, error)) (refused, warned []Refusal, err error) {
	former, next := keyFiles(was), keyFiles(is)
	brings := func(k tokenKey) bool {
		return slices.ContainsFunc(given, func(f File) bool { return f.Path == k.file })
	}
	if slices.Equal(former, next) && !slices.ContainsFunc(next, brings) {
		return nil, nil, nil
	}
	b, err := readKeys(next, readNext)
	if err != nil {
		return nil, nil, err
	}
	a, err := readKeys(former, readFormer)
	if err != nil {
		return nil, nil, fmt.Errorf("the former keys, with which running API servers accept tokens, cannot be compared: %w", err)
	}
	row := argument(keyFile)
	of := func(k tokenKey, to, reason, needed string) Refusal {
		return Refusal{Field: clusterKind + "." + fieldOf[k.component] + ".extraArgs", From: k.flag + "=" + k.file, To: to, Reason: reason, Needed: needed}
	}
	const gone = keyFile + " without this key"
	for _, k := range a.signs {
		if !b.accept(k) {
			refused = append(refused, of(k, gone, row.Reason, row.Needed))
		}
	}
	for _, k := range b.signs {
		switch {
		case !b.accept(k):
			refused = append(refused, of(k, gone, "API servers would refuse the tokens that it signs", "give its public key, too: "+keyFile))
		case !a.accept(k):
			warned = append(warned, of(k, "new", "API servers that have not followed refuse the tokens that it signs, and all of them do after undo", newKey))
		}
	}
	for _, k := range a.accepts {
		if !b.accept(k) && !slices.ContainsFunc(a.signs, func(s tokenKey) bool { return s.public == k.public }) {
			warned = append(warned, of(k, gone, row.Reason, row.Needed))
		}
	}
	return unique(refused), unique(warned), nil
}

// keyFiles returns the files with the keys of tokens.
func keyFiles(c *config.Cluster) (list []tokenKey) {
	for _, one := range mounted(c) {
		for _, flag := range []string{keyFile, signingKeyFile, privateKeyFile} {
			if row := argument(flag); row.Component == fieldOf[one.name] {
				for _, value := range row.values(c, flag) {
					list = append(list, tokenKey{component: one.name, flag: flag, file: one.fileOf(value)})
				}
			}
		}
	}
	return list
}

// readKeys reads files with keys, as kube-apiserver does: a public key may be in the file of the private one, and a file may have
// several.
func readKeys(files []tokenKey, read func(file string) ([]byte, error)) (k tokenKeys, err error) {
	for _, f := range files {
		data, err := read(f.file)
		if err != nil {
			return k, fmt.Errorf("reading the keys of --%s: %w", f.flag, err)
		}
		list, err := keyutil.ParsePublicKeysPEM(data)
		if err != nil {
			return k, fmt.Errorf("reading %s, which --%s names: it has no key in PEM", f.file, f.flag)
		}
		for _, key := range list {
			der, err := x509.MarshalPKIXPublicKey(key)
			if err != nil {
				return k, fmt.Errorf("reading %s: %w", f.file, err)
			}
			f.public = string(der)
			if f.flag == keyFile {
				k.accepts = append(k.accepts, f)
			} else {
				k.signs = append(k.signs, f)
			}
		}
	}
	return k, nil
}

func (k tokenKeys) accept(one tokenKey) bool {
	return slices.ContainsFunc(k.accepts, func(a tokenKey) bool { return a.public == one.public })
}

func unique(list []Refusal) (kept []Refusal) {
	for _, r := range list {
		if !slices.Contains(kept, r) {
			kept = append(kept, r)
		}
	}
	return kept
}
