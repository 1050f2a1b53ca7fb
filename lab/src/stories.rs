//! API stories: what PureLB relies on of a Kubernetes API server, told once and asked of every server we test with.
//!
//! A story is an async function that gets a [`Ground`] and speaks plain JSON over it, so that it sees what is on the
//! wire and nothing that a typed client would smooth over. The facts were established on kube-apiserver 1.36; kubelite
//! has to give the same answers. Stories may run at the same time on one server, each in its own namespace.

pub mod agents;
pub mod bgp;
pub mod expiry;
pub mod groups;
pub mod kinds;
pub mod malformed;
pub mod objects;
pub mod patches;
pub mod refusals;
pub mod selection;
pub mod service_families;
pub mod service_status;
pub mod services;
pub mod watchers;
pub mod watching;

mod ground;
mod manifest;

pub use ground::{Ground, Past, PatchType, Watch, conflict, contains, invalid, refused};

/// Calls the macro `$tests` with the list of all stories, room by room: `room: [story, ...],`.
#[macro_export]
macro_rules! for_each_story {
    ($tests:ident) => {
        $tests! {
            agents: [
                v2_agents_have_defaults,
                v1_agents_have_their_own_defaults,
                an_agent_has_a_status,
            ],
            bgp: [
                a_bgp_configuration_is_stored_as_written,
                a_bgp_configuration_needs_an_as,
                a_bgp_configuration_has_a_status_and_lets_go,
                a_bgp_node_status_is_of_the_whole_cluster,
            ],
            expiry: [
                an_old_continue_token_is_expired,
                a_list_at_an_old_version_is_expired,
                a_watch_from_an_old_version_is_expired,
                a_watch_from_before_the_definition_is_expired,
            ],
            groups: [
                only_v1_groups_are_automatic,
                defaults_are_filled_in,
                unknown_fields_are_pruned,
                every_v1_form_is_stored_as_written,
                status_and_spec_have_doors_of_their_own,
                the_generation_counts_changes_of_the_spec,
                a_group_status_conflicts_and_is_checked,
                a_group_is_replaced_with_its_version_only,
                a_watch_sees_writes_through_the_other_version,
            ],
            kinds: [
                a_lease_is_renewed_in_microseconds_by_one_at_a_time,
                an_event_is_written_and_counted_up,
                endpoint_slices_are_found_by_service,
                a_secret_takes_text_and_keeps_base64,
                a_node_reports_its_status,
                a_pod_becomes_ready_and_goes,
                a_namespace_is_labelled_with_its_name,
                discovery_lists_the_kinds,
            ],
            malformed: [
                bodies_that_are_no_object_are_refused,
                objects_for_another_door_are_refused,
                custom_resources_for_another_door_are_refused,
                unknown_doors_and_verbs_are_refused,
                broken_selectors_are_refused,
                broken_versions_and_tokens_are_refused,
            ],
            objects: [
                an_object_is_created_read_listed_changed_and_deleted,
                a_name_is_taken_once_per_namespace,
                what_is_absent_is_not_found,
                a_missing_namespace_takes_no_objects,
                names_follow_rfc_1123,
                a_stale_update_conflicts,
                an_unchanged_update_keeps_the_resource_version,
                identity_cannot_be_changed,
                delete_preconditions_are_respected,
                finalizers_delay_deletion,
                generated_names_are_fresh,
                a_dry_run_stores_nothing,
                a_collection_is_deleted_by_label,
            ],
            patches: [
                a_merge_patch_changes_what_it_names,
                a_patch_with_a_stale_version_conflicts,
                a_json_patch_applies_all_steps_or_none,
                a_strategic_patch_merges_ports_by_number,
                a_strategic_patch_merges_conditions_by_type,
                unsupported_patch_formats_are_refused,
                a_patch_cannot_make_an_invalid_object,
            ],
            refusals: [
                a_v2_group_has_exactly_one_source,
                automatic_placement_goes_with_local_only,
                namespace_rules_need_namespaces,
                multi_pool_and_balance_pools_exclude_each_other,
                aggregation_fits_its_family,
                missing_and_mistyped_fields_are_refused,
                a_v2_group_is_not_edited_as_v1,
                a_v1_group_is_edited_through_both_versions,
                a_group_name_in_capitals_is_refused,
            ],
            selection: [
                a_list_comes_in_pages_of_one_moment,
                labels_select_by_equality_sets_and_existence,
                fields_select_by_name_namespace_and_type,
                other_kinds_have_fields_of_their_own,
            ],
            service_families: [
                families_and_addresses_follow_the_wish,
                a_service_grows_to_two_families_and_shrinks_again,
                a_service_shrinks_by_its_lists,
                inconsistent_families_are_refused,
            ],
            service_status: [
                one_merge_patch_sets_annotations_ingress_and_condition,
                a_decision_on_a_stale_service_conflicts,
                the_same_status_again_is_no_write,
                spec_and_status_have_doors_of_their_own,
                ingress_keeps_its_order,
                wrong_ingress_is_refused,
            ],
            services: [
                a_load_balancer_gets_cluster_address_and_node_port,
                node_ports_can_be_declined,
                a_cluster_service_has_no_outside_fields,
                a_headless_service_has_no_address,
                a_cluster_address_can_be_asked_for,
                local_traffic_policy_has_a_health_check_port,
                leaving_the_type_clears_what_belongs_to_it,
                the_class_of_a_load_balancer_is_immutable,
                ports_are_checked,
                types_and_policies_are_checked,
                a_service_name_has_no_dots,
            ],
            watchers: [
                a_listing_watcher_sees_create_modify_and_delete,
                a_paging_watcher_sees_create_modify_and_delete,
                a_streaming_watcher_sees_create_modify_and_delete,
            ],
            watching: [
                a_watch_from_a_resource_version_sees_each_change_once_and_in_order,
                a_watch_without_a_resource_version_begins_with_what_is_there,
                a_service_leaves_and_enters_the_watch_on_its_type,
                an_object_leaves_and_enters_the_watch_on_its_labels,
                a_watch_sees_only_what_it_asked_for,
                a_bookmark_tells_how_far_a_watch_has_come,
                initial_events_end_with_a_marked_bookmark,
            ],
        }
    };
}
