-- one row per trace_id, span_id: one observation of a trace: its columns, then the fields that its attributes have under any known name
select * replace (resource::json as resource, attributes::json as attributes, contents::json as contents,
                  events::json as events, links::json as links),
       case when kind = 'log' then 'event'
            else observation_type(attribute_type(source, attributes, contents, resource)) end as type,
       case when ended_at >= started_at then epoch_us(ended_at - started_at) / 1e6 end as latency_s,
       attribute_input(source, attributes, contents, resource) as input,
       attribute_output(source, attributes, contents, resource) as output,
       attribute_model(source, attributes, contents, resource) as model,
       attribute_provider(source, attributes, contents, resource) as provider,
       plausible('tokens_in', try_cast(attribute_tokens_in(source, attributes, contents, resource) as bigint)) as tokens_in,
       plausible('tokens_out', try_cast(attribute_tokens_out(source, attributes, contents, resource) as bigint)) as tokens_out,
       plausible('cost_usd', try_cast(attribute_cost_usd(source, attributes, contents, resource) as double)) as cost_usd,
       implausible(source, attributes, contents, resource) as implausible,
       attribute_session_id(source, attributes, contents, resource) as session_id,
       attribute_user_id(source, attributes, contents, resource) as user_id,
       list_of_tags(attribute_tags(source, attributes, contents, resource)) as tags,
       attribute_version(source, attributes, contents, resource) as version,
       attribute_environment(source, attributes, contents, resource) as environment,
       attribute_service(source, attributes, contents, resource) as service,
       attribute_trace_name(source, attributes, contents, resource) as trace_name,
       attribute_tool_name(source, attributes, contents, resource) as tool_name
from source.observations
