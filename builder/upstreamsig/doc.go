// Package upstreamsig verifies the keyless signatures (sigstore) that Kubernetes publishes
// for its binaries and images. It is the only package that links sigstore's library.
//
// A keyless signature has a certificate that is valid for ten minutes. It names the account that
// signed. Three things make it a proof later: the certificate is from sigstore's CA (Fulcio) and in
// its certificate log, the signature is in a transparency log (Rekor) whose time is within those
// ten minutes, and the account is in this package's table. The keys of the CA and the logs are the
// trusted root.
package upstreamsig
