package plan

// checkProfile refuses a profile that a running cluster does not have.
func (s *site) checkProfile() {
	if p := s.Spec.Profile; p != "" && s.cluster.Profile != p {
		s.problem("", "remove profile from cluster.yaml; or create another cluster with it", "the profile is for new clusters",
			"cluster.yaml has the profile %s, and the cluster was created without it", p)
	}
}
