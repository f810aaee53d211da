"""From a record, a policy and facts to a Decision: pure, so that anyone can derive it again."""
