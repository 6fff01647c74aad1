package configfile

import (
	"bytes"
	"cmp"

	"airlift/installer/config"
	"airlift/installer/pki"
)

// Migrate converts a file to a current version of kubeadm's format, and fills in all defaults. experimental
// allows v1beta4 where the Kubernetes version has v1beta3.
func (r *Reader) Migrate(path string, experimental bool) ([]byte, error) {
	f, err := r.read(path, thisHost, false)
	if err != nil {
		return nil, err
	}
	if experimental {
		f.API = config.NewerAPI(f.API, "v1beta4")
	}
	var docs [][]byte
	add := func(data []byte, e error) {
		docs, err = append(docs, data), cmp.Or(err, e)
	}
	if f.Init != nil {
		if f.Init.EncryptionAlgorithm == "" {
			f.Init.EncryptionAlgorithm = pki.DefaultAlgorithm
		}
		add(f.Init.WriteInit(f.API))
	}
	if f.Join != nil {
		add(f.Join.WriteJoin(f.API))
	}
	if f.Reset != nil {
		add(f.Reset.Write(f.API))
	}
	if f.Upgrade != nil {
		add(f.Upgrade.Write(f.API))
	}
	if err != nil {
		return nil, err
	}
	return bytes.Join(append(docs, f.Components...), []byte("---\n")), nil
}
