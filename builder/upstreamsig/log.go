package upstreamsig

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
)

// LogURL finds the entries of a signature in the public transparency log. cosign
// verify-blob sends the same request.
const LogURL = "https://rekor.sigstore.dev/api/v1/log/entries/retrieve"

// hashedrekord is the kind of log entry for a signature of a sha256.
type hashedrekord struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Data struct {
			Hash struct {
				Algorithm string `json:"algorithm"`
				Value     string `json:"value"`
			} `json:"hash"`
		} `json:"data"`
		Signature struct {
			Content   []byte `json:"content"`
			PublicKey struct {
				Content []byte `json:"content"`
			} `json:"publicKey"`
		} `json:"signature"`
	} `json:"spec"`
}

// Query is the body of the request to LogURL.
func (d *Detached) Query() ([]byte, error) {
	e := hashedrekord{APIVersion: "0.0.1", Kind: "hashedrekord"}
	e.Spec.Data.Hash.Algorithm, e.Spec.Data.Hash.Value = "sha256", hex.EncodeToString(d.signed)
	e.Spec.Signature.Content, e.Spec.Signature.PublicKey.Content = d.signature, d.pem
	return json.Marshal(struct {
		Entries []hashedrekord `json:"entries"`
	}{[]hashedrekord{e}})
}

// logEntry is an entry in the answer to a Query.
type logEntry struct {
	Body           []byte `json:"body"`
	IntegratedTime int64  `json:"integratedTime"`
	LogID          string `json:"logID"` // hex
	LogIndex       int64  `json:"logIndex"`
	Verification   struct {
		InclusionProof *struct {
			Checkpoint string   `json:"checkpoint"`
			Hashes     []string `json:"hashes"`
			LogIndex   int64    `json:"logIndex"`
			RootHash   string   `json:"rootHash"`
			TreeSize   int64    `json:"treeSize"`
		} `json:"inclusionProof"`
		SignedEntryTimestamp []byte `json:"signedEntryTimestamp"`
	} `json:"verification"`
}

// WithLog returns the signature with each of the entries in the answer to Query.
func (d *Detached) WithLog(answer []byte) ([]Material, error) {
	var list []map[string]logEntry
	if err := json.Unmarshal(answer, &list); err != nil {
		return nil, fmt.Errorf("%w: reading the answer: %w", ErrLog, err)
	}
	var all []Material
	for _, byUUID := range list {
		for _, e := range byUUID {
			entry, err := e.proto()
			if err != nil {
				return nil, err
			}
			m, err := d.material(entry)
			if err != nil {
				return nil, err
			}
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: it has no entry for this signature", ErrLog)
	}
	return all, nil
}

func (e logEntry) proto() (*protorekor.TransparencyLogEntry, error) {
	var kind hashedrekord
	if err := json.Unmarshal(e.Body, &kind); err != nil {
		return nil, fmt.Errorf("%w: reading an entry: %w", ErrLog, err)
	}
	id, err := hex.DecodeString(e.LogID)
	if err != nil {
		return nil, fmt.Errorf("%w: reading an entry: %w", ErrLog, err)
	}
	p := &protorekor.TransparencyLogEntry{
		LogIndex:          e.LogIndex,
		LogId:             &protocommon.LogId{KeyId: id},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.APIVersion},
		IntegratedTime:    e.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: e.Verification.SignedEntryTimestamp},
		CanonicalizedBody: e.Body,
	}
	if proof := e.Verification.InclusionProof; proof != nil {
		p.InclusionProof = &protorekor.InclusionProof{LogIndex: proof.LogIndex, TreeSize: proof.TreeSize,
			Checkpoint: &protorekor.Checkpoint{Envelope: proof.Checkpoint}}
		if p.InclusionProof.RootHash, err = hex.DecodeString(proof.RootHash); err != nil {
			return nil, fmt.Errorf("%w: reading an inclusion proof: %w", ErrLog, err)
		}
		for _, h := range proof.Hashes {
			hash, err := hex.DecodeString(h)
			if err != nil {
				return nil, fmt.Errorf("%w: reading an inclusion proof: %w", ErrLog, err)
			}
			p.InclusionProof.Hashes = append(p.InclusionProof.Hashes, hash)
		}
	}
	return p, nil
}

// cosignBundle is the log entry that cosign stores with the signature of an image.
type cosignBundle struct {
	SignedEntryTimestamp []byte
	Payload              struct {
		Body           string `json:"body"` // base64
		IntegratedTime int64  `json:"integratedTime"`
		LogID          string `json:"logID"`
		LogIndex       int64  `json:"logIndex"`
	}
}

func (c cosignBundle) proto() (*protorekor.TransparencyLogEntry, error) {
	body, err := base64.StdEncoding.DecodeString(c.Payload.Body)
	if err != nil {
		return nil, fmt.Errorf("%w: reading an entry: %w", ErrLog, err)
	}
	e := logEntry{Body: body, IntegratedTime: c.Payload.IntegratedTime, LogID: c.Payload.LogID, LogIndex: c.Payload.LogIndex}
	e.Verification.SignedEntryTimestamp = c.SignedEntryTimestamp
	return e.proto()
}
