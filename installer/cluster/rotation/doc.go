// Package rotation has the state of a rotation of the CAs in the cluster, and what trusts the CAs.
package rotation
