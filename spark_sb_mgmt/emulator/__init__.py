"""The embedded Service Bus: pure entity state (`entities`), the rule language (`rules`), and a thin proton server around them."""
